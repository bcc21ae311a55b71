"""Whether a delivery is believed: every scheme, with the vendors' own examples where they have any.

Where an example is from is said beside it.
"""

from __future__ import annotations

import base64
import hmac
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vigil.web.webhooks.mapping import WebhookDelivery
from vigil.web.webhooks.signatures import SCHEMES, UNSIGNED, Signing, problem_of

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SECRET = "It's a Secret to Everybody"
OTHER = "another secret of that length"
BODY = b'{"alerts": []}'


def problem(signing, headers, body=BODY, *, secrets=(SECRET,), now=NOW):
    delivery = WebhookDelivery(headers=headers, body=body)
    return problem_of(signing, secrets, delivery, now=now)


def signed(body, secret=SECRET):
    return hmac.new(secret.encode(), body, sha256).hexdigest()


def test_the_example_of_github_is_believed():
    # https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    header = {"x-hub-signature-256": f"sha256={digest}"}
    assert problem(Signing(scheme="github"), header, b"Hello, World!") == ""
    assert problem(Signing(scheme="github"), header, b"Hello, World?") == UNSIGNED
    bare = {"x-hub-signature-256": digest}
    assert problem(Signing(scheme="github"), bare, b"Hello, World!") == UNSIGNED


STANDARD = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
"""The vector of the libraries of https://github.com/standard-webhooks/standard-webhooks."""

STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_BODY = b'{"test": 2432232314}'
STANDARD_AT = datetime.fromtimestamp(1614265330, UTC)


def standard(headers=STANDARD, *, body=STANDARD_BODY, now=STANDARD_AT, secrets=(STANDARD_SECRET,)):
    return problem(Signing(scheme="standard"), headers, body, secrets=secrets, now=now)


def test_the_example_of_standard_webhooks_is_believed():
    assert standard() == ""
    several = f"v2,x v1,{base64.b64encode(b'no').decode()} {STANDARD['webhook-signature']}"
    assert standard(STANDARD | {"webhook-signature": several}) == ""


def test_what_was_changed_on_the_way_is_not_believed():
    assert standard(body=b'{"test": 2432232315}') == UNSIGNED
    assert standard(STANDARD | {"webhook-id": "msg_other"}) == UNSIGNED
    assert standard(STANDARD | {"webhook-signature": "v1,"}) == UNSIGNED
    assert standard(secrets=[]) == UNSIGNED


@pytest.mark.parametrize("far_s", [301, -301, 86_400])
def test_a_signature_of_another_time_is_not_believed(far_s):
    assert "is over 300 s from ours" in standard(now=STANDARD_AT + timedelta(seconds=far_s))
    assert standard(now=STANDARD_AT + timedelta(seconds=300)) == ""


@pytest.mark.parametrize("time", ["", "x", "-1", "1614265330.0", "01614265330", "9" * 40, "¹"])
def test_a_time_that_is_none_is_not_believed(time):
    assert standard(STANDARD | {"webhook-timestamp": time}) == "its time is no count of seconds"


def test_one_of_several_signatures_of_pagerduty_is_enough():
    # https://developer.pagerduty.com/docs/verifying-webhook-signatures
    signing = Signing(scheme="pagerduty")
    several = f"v1={signed(BODY, OTHER)}, v1={signed(BODY)}"
    assert problem(signing, {"x-pagerduty-signature": several}) == ""
    assert problem(signing, {"x-pagerduty-signature": f"v1={signed(BODY, OTHER)}"}) == UNSIGNED
    assert problem(signing, {"x-pagerduty-signature": signed(BODY)}) == UNSIGNED
    assert problem(signing, {}) == UNSIGNED


def test_grafana_signs_the_body_and_the_time_if_it_is_told_to():
    # https://grafana.com/docs/grafana/latest/alerting/configure-notifications/
    #   manage-contact-points/integrations/webhook-notifier/#hmac-signature
    plain = Signing(scheme="grafana")
    assert problem(plain, {"x-grafana-alerting-signature": signed(BODY)}) == ""
    timed = Signing(scheme="grafana", header="x-sign", timestamp_header="x-time")
    time = str(int(NOW.timestamp()))
    header = {"x-sign": signed(time.encode() + b":" + BODY), "x-time": time}
    assert problem(timed, header) == ""
    assert problem(timed, {**header, "x-time": str(int(time) + 1)}) == UNSIGNED
    assert "is over 300 s" in problem(timed, header, now=NOW + timedelta(hours=1))
    assert problem(timed, {"x-sign": signed(BODY)}) == "its time is no count of seconds"


def test_a_header_of_ones_own_has_a_prefix():
    signing = Signing(scheme="hmac", header="x-signature", prefix="sha256=")
    assert problem(signing, {"x-signature": f"sha256={signed(BODY)}"}) == ""
    assert problem(signing, {"x-signature": signed(BODY)}) == UNSIGNED


def test_alertmanager_comes_with_the_secret_itself():
    bearer = Signing(scheme="bearer")
    assert problem(bearer, {"authorization": f"Bearer {SECRET}"}) == ""
    assert problem(bearer, {"authorization": f"bearer {SECRET}"}) == ""
    assert problem(bearer, {"authorization": f"Basic {SECRET}"}) == UNSIGNED
    basic = Signing(scheme="basic", user="alerts")
    pair = base64.b64encode(f"alerts:{SECRET}".encode()).decode()
    assert problem(basic, {"authorization": f"Basic {pair}"}) == ""
    wrong = base64.b64encode(f"other:{SECRET}".encode()).decode()
    assert problem(basic, {"authorization": f"Basic {wrong}"}) == UNSIGNED
    assert problem(basic, {"authorization": "Basic !"}) == UNSIGNED


def test_a_second_secret_is_believed_while_it_is_changed():
    signing = Signing(scheme="github")
    header = {"x-hub-signature-256": f"sha256={signed(BODY, OTHER)}"}
    assert problem(signing, header) == UNSIGNED
    assert problem(signing, header, secrets=[SECRET, OTHER]) == ""


HEADERS = st.dictionaries(
    st.sampled_from(
        [
            *("x-hub-signature-256", "x-pagerduty-signature", "x-grafana-alerting-signature"),
            *("webhook-id", "webhook-timestamp", "webhook-signature", "authorization", "x-own"),
        ]
    ),
    st.text(max_size=40)
    | st.sampled_from(["v1=", "v1,", "sha256=", "Basic Og==", "Bearer ", "1764417600"]),
)


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(headers=HEADERS, body=st.binary(max_size=40))
def test_nothing_that_is_not_signed_is_believed(scheme, headers, body):
    signing = Signing(scheme=scheme, header="x-own", user="alerts")
    secrets = [STANDARD_SECRET]
    assert problem(signing, headers, body, secrets=secrets) != ""
    assert problem(signing, headers, body, secrets=[]) != ""
