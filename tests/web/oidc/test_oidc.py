"""People sign in by a provider of OpenID Connect, and nothing else signs them in by it."""

from __future__ import annotations

from datetime import timedelta
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import OctKey

from engine.people.identity import Role
from streams.clock import SystemClock
from streams.memory import memory_ports
from tests.web.oidc.provider import CLIENT, SECRET, LocalProvider, new_key, serving
from vigil.client import Client
from vigil.errors import Mistake, NotSignedIn
from vigil.web import serve
from vigil.web.access.sign_in import SESSION
from vigil.web.app import console
from vigil.web.oidc.login import BEGUN, HOST_BEGUN
from vigil.web.oidc.provider import provider_in
from vigil.web.oidc.settings import OidcSpec, problem_of_url, vouched_by

ADDRESS = "http://console.test"
TABLE = f"""
stack = "shop"

[oidc]
issuer = "ISSUER"
client_id = "{CLIENT}"
client_secret = "env:OIDC_SECRET"
label = "Sign in with Example"
default_role = "viewer"

[oidc.roles]
ops = "operator"
bosses = "admin"

[oidc.groups]
"SRE On-Call" = "oncall"
"""
ANN = {"sub": "s1", "preferred_username": "ann", "groups": ["ops", "SRE On-Call", "others"]}


class Ahead:
    """The clock, put forward by the test."""

    def __init__(self):
        self.by, self._real = timedelta(), SystemClock()

    def now(self):
        return self._real.now()

    def monotonic_s(self):
        return self._real.monotonic_s() + self.by.total_seconds()

    async def sleep(self, seconds):
        self.by += timedelta(seconds=seconds)


@pytest.fixture
async def provider():
    provider = LocalProvider(person=dict(ANN))
    async with serving(provider):
        yield provider


@pytest.fixture
def clock():
    return Ahead()


@pytest.fixture
async def client(stack):
    ports = memory_ports(stack=stack, clock=SystemClock())
    async with Client.on(ports, by="console") as client:
        await client.people.add("root", role="admin")
        yield client


@pytest.fixture
def known(provider, clock, tmp_path, monkeypatch):
    """The provider as the console knows it."""
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    file = tmp_path / "vigil.toml"
    file.write_text(TABLE.replace("ISSUER", provider.issuer))
    return provider_in(file, clock)


@pytest.fixture
async def browser(client, known):
    transport = httpx.ASGITransport(app=console(client, oidc=known))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as browser:
        yield browser


async def begin(browser, to="/"):
    """Begin at the console, and return where the provider sends the browser back to."""
    there = await browser.get("/login/oidc", params={"to": to})
    assert there.status_code == 303
    async with httpx.AsyncClient() as elsewhere:
        back = await elsewhere.get(there.headers["location"])
    return back.headers["location"]


async def login(browser, to="/"):
    return await browser.get(await begin(browser, to))


async def people(client):
    return {each.name: each for each in await client.people.list()}


async def test_who_is_known_to_the_provider_signs_in_with_role_and_groups(client, browser):
    page = await browser.get("/login")
    assert "Sign in with Example" in page.text
    done = await login(browser, to="/episodes?status=failed")
    assert (done.status_code, done.headers["location"]) == (303, "/episodes?status=failed")
    who = await client.people.identify(browser.cookies[SESSION])
    assert (who.name, who.role, who.groups) == ("ann", Role.OPERATOR, {"oncall"})
    assert BEGUN not in browser.cookies
    (session,) = await client.people.sessions("ann")
    assert session.way == "oidc"


async def test_who_comes_again_is_the_same_person_with_what_holds_now(client, browser, provider):
    await login(browser)
    first = browser.cookies[SESSION]
    provider.person |= {"preferred_username": "ann.b", "groups": ["bosses"]}
    await login(browser)
    assert {"root", "ann"} == (await people(client)).keys()
    assert (await people(client))["ann"].role is Role.ADMIN
    assert await client.people.identify(first) is None  # The role has changed.


async def test_the_cookies_of_a_login_are_for_this_browser_alone(client, known):
    transport = httpx.ASGITransport(app=console(client, origin="https://vigil.test", oidc=known))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as browser:
        there = await browser.get("/login/oidc")
    (cookie,) = SimpleCookie(there.headers["set-cookie"]).values()
    assert (cookie.key, cookie["httponly"], cookie["secure"]) == (HOST_BEGUN, True, True)
    asked = parse_qs(urlsplit(there.headers["location"]).query)
    assert asked["redirect_uri"] == ["https://vigil.test/login/oidc/callback"]
    assert asked["response_type"] == ["code"]


async def test_a_login_ends_in_the_browser_that_has_begun_it(client, known, browser):
    back = await begin(browser)
    transport = httpx.ASGITransport(app=console(client, oidc=known))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as other:
        refused = await other.get(back)
        assert refused.status_code == 401
        await begin(other)
        assert (await other.get(back)).status_code == 401  # Another state.
    assert (await browser.get(back)).status_code == 303


async def test_a_code_works_once(browser):
    back = await begin(browser)
    kept = dict(browser.cookies)
    assert (await browser.get(back)).status_code == 303
    browser.cookies.update(kept)
    refused = await browser.get(back)
    assert refused.status_code == 401
    assert "invalid_grant" in refused.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "somebody else"},
        {"aud": [CLIENT, "other"]},
        {"aud": [CLIENT, "other"], "azp": "other"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"exp": None},
        {"iat": 99999999999},
        {"sub": None},
        {"sub": ""},
        {"sub": "x" * 256},
        {"preferred_username": None},
    ],
    ids=str,
)
async def test_a_token_that_is_not_for_this_login_signs_nobody_in(browser, client, provider, wrong):
    provider.claims = wrong
    assert (await login(browser)).status_code == 401
    assert SESSION not in browser.cookies
    assert "ann" not in await people(client)


async def test_a_token_of_a_client_among_several_says_that_it_is_ours(browser, provider):
    provider.claims = {"aud": [CLIENT, "other"], "azp": CLIENT}
    assert (await login(browser)).status_code == 303


@pytest.mark.parametrize("how", ["none", "secret", "other_key"])
async def test_a_token_that_no_key_of_the_provider_has_signed_signs_nobody_in(
    browser, provider, how
):
    match how:
        case "none":
            provider.header = {"alg": "none"}
        case "secret":
            provider.header = {"alg": "HS256"}
            provider.signer = OctKey.import_key(SECRET)
        case _:
            provider.signer = new_key("k1")
    assert (await login(browser)).status_code == 401
    assert SESSION not in browser.cookies


async def test_a_new_key_is_asked_for_now_and_then(browser, provider, clock):
    assert (await login(browser)).status_code == 303
    provider.keys = [new_key("k2")]
    assert (await login(browser)).status_code == 401
    assert provider.asked_for_keys == 1
    clock.by += timedelta(minutes=1)
    assert (await login(browser)).status_code == 303
    assert provider.asked_for_keys == 2


async def test_a_secret_is_told_as_the_provider_takes_it(browser, provider):
    provider.methods = ["client_secret_post"]
    assert (await login(browser)).status_code == 303


@pytest.mark.parametrize(
    "said", ["error=access_denied&state=STATE", "code=x&state=STATE&iss=https://evil.example",
             "state=STATE", f"code={'x' * 5000}&state=STATE", "code=x&state=%00", ""]
)  # fmt: skip
async def test_what_comes_back_and_is_no_code_signs_nobody_in(browser, said):
    back = await begin(browser)
    state = parse_qs(urlsplit(back).query)["state"][0]
    refused = await browser.get(f"/login/oidc/callback?{said.replace('STATE', state)}")
    assert refused.status_code == 401
    assert BEGUN not in browser.cookies


@pytest.mark.parametrize("to", ["https://evil.example", "//evil.example", "/\\evil.example"])
async def test_nobody_is_led_elsewhere(browser, to):
    assert (await login(browser, to)).headers["location"] == "/"


async def test_a_provider_that_is_away_is_said_to_be(browser, provider):
    provider.is_away = True
    page = await browser.get("/login/oidc")
    assert (page.status_code, "status 502" in page.text) == (503, True)


async def test_an_answer_of_a_provider_has_an_end(browser, provider):
    provider.is_endless = True
    page = await browser.get("/login/oidc")
    assert (page.status_code, "over 1,048,576 bytes" in page.text) == (503, True)


async def test_what_another_issuer_says_is_not_believed(browser, provider):
    provider.issuer = "http://127.0.0.1:1"
    page = await browser.get("/login/oidc")
    assert (page.status_code, "is about" in page.text) == (503, True)


async def test_a_name_takes_over_nobody(browser, client, provider):
    await client.people.add("ann", role="admin", password="correct horse battery")
    refused = await login(browser)
    assert "There is &#39;ann&#39; already" in refused.text
    assert SESSION not in browser.cookies
    provider.person["preferred_username"] = "bob"
    await client.people.add("bob", role="approver")
    assert (await login(browser)).status_code == 303
    assert (await people(client))["bob"].issuer == provider.issuer


async def test_without_a_provider_there_is_no_such_page(client):
    transport = httpx.ASGITransport(app=console(client))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as browser:
        assert "/login/oidc" not in (await browser.get("/login")).text


def spec(**said):
    given = {"issuer": "https://id.example", "client_id": "vigil"} | said
    return OidcSpec.model_validate(given)


def test_roles_are_the_greatest_of_the_groups_or_nobody_may():
    both = spec(roles={"ops": "operator", "bosses": "admin"})
    assert vouched_by(both, {**ANN, "groups": ["ops", "bosses"]}).role is Role.ADMIN
    with pytest.raises(NotSignedIn, match="no group of yours has a role here"):
        vouched_by(both, {**ANN, "groups": ["others"]})
    assert vouched_by(spec(), ANN).role is None
    assert vouched_by(spec(), ANN).groups is None
    deep = spec(groups_claim="realm.roles", roles={"ops": "operator"})
    assert vouched_by(deep, {**ANN, "realm": {"roles": ["ops"]}}).role is Role.OPERATOR
    assert vouched_by(spec(groups={"ops": "oncall"}), {**ANN, "groups": "ops"}).groups == (
        "oncall",
    )


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('issuer = "http://id.example"\nclient_id = "v"', "issuer: .* write https"),
        ('issuer = "https://id.example"', "client_id"),
        ('issuer = "https://i.e"\nclient_id = "v"\nclient_secret = "open"', "secret: write `env"),
        ('issuer = "https://i.e"\nclient_id = "v"\nclient_secret = "env:NO"', "NO is not set"),
        ('issuer = "https://i.e"\nclient_id = "v"\ndefault_role = "boss"', "'boss' is none"),
        (
            'issuer = "https://i.e"\nclient_id = "v"\nroles = {a = "boss"}',
            "roles.a: 'boss' is none",
        ),
        ('issuer = "https://i.e"\nclient_id = "v"\ngroups = {a = "b c"}', "groups.a: 'b c' cannot"),
        ('issuer = "https://i.e"\nclient_id = "v"\nscopes = ["email"]', "scopes: write openid"),
        ('issuer = "https://i.e"\nclient_id = "v"\nrole = "x"', "role"),
    ],
)
def test_what_cannot_be_is_one_line_that_names_the_field(tmp_path, said, why):
    file = tmp_path / "vigil.toml"
    file.write_text(f"[oidc]\n{said}\n")
    with pytest.raises(Mistake, match=f"vigil.toml: oidc: .*{why}") as caught:
        provider_in(file, SystemClock())
    assert "\n" not in str(caught.value)


def test_who_names_no_provider_has_none(tmp_path):
    file = tmp_path / "vigil.toml"
    assert provider_in(file, SystemClock()) is None
    file.write_text('oidc = "yes"')
    with pytest.raises(Mistake, match="write it as a table"):
        provider_in(file, SystemClock())


def test_without_the_extra_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    assert serve._oidc() is None
    (tmp_path / "vigil.toml").write_text("[oidc]\n")
    with pytest.raises(Mistake, match=r'pip install "vigil-engine\[oidc\]"'):
        serve._oidc()


def test_what_is_elsewhere_is_asked_by_https():
    assert problem_of_url("https://id.example/realms/a") == ""
    assert problem_of_url("http://127.0.0.1:9/x") == ""
    for wrong in ("http://id.example", "ftp://a", "id.example", "https://", "https://a#b"):
        assert problem_of_url(wrong)
