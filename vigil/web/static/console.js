// Vigil console: live regions by server-sent events, forms without a reload, times that go on,
// keys. Every page works without it.
(() => {
  'use strict';
  const HIDDEN_S = 10, SILENT_S = 20, WAIT_MS = [500, 5000], SEND_MS = 15000, TOLD_TRIES = 2, TICK_MS = 10000;
  const policy = window.trustedTypes?.createPolicy('vigil', { createHTML: text => text });
  const parse = text => new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, 'text/html');
  const by = id => document.getElementById(id);
  const say = (text, isRefused) => {
    const line = by('say');
    line.setAttribute('role', isRefused ? 'alert' : 'status'); line.textContent = text;
    line.classList.toggle('said', !!text); line.classList.toggle('refused', !!isRefused);
  };

  // Make `a` look like `b`. Nodes that stay keep focus, text, scroll, and what people opened.
  // By attributes: the field `id` of a form hides the form's own `id`.
  const key = node => node.nodeType === 1 ? node.getAttribute('id') || node.getAttribute('data-key') || '' : '';
  const KEPT = new Set(['open']);
  function morph(a, b) {
    if (a.nodeName !== b.nodeName || key(a) !== key(b)) return a.replaceWith(b);
    if (a.nodeType !== 1) { if (a.data !== b.data) a.data = b.data; return; }
    if (a.isEqualNode(b)) return;
    for (const { name } of [...a.attributes]) if (!b.hasAttribute(name) && !KEPT.has(name)) a.removeAttribute(name);
    for (const { name, value } of b.attributes) if (a.getAttribute(name) !== value) a.setAttribute(name, value);
    const wanted = new Set([...b.children].map(key)), there = new Map();
    for (const node of [...a.children]) if (key(node)) wanted.has(key(node)) ? there.set(key(node), node) : node.remove();
    let at = a.firstChild;
    for (const node of [...b.childNodes]) {
      const name = key(node);
      const match = name ? there.get(name) : at && !key(at) && at.nodeName === node.nodeName ? at : null;
      if (!match) { a.insertBefore(fresh(node), at); continue; }
      if (match === at) at = at.nextSibling; else a.insertBefore(match, at);
      morph(match, node);
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  }
  // A button that has just come is dead for half a second: nobody meant to press it.
  const NEW_MS = 500;
  function fresh(node) {
    if (node.nodeType !== 1) return node;
    for (const button of [...node.querySelectorAll('button'), ...(node.matches('button') ? [node] : [])]) {
      button.inert = true; setTimeout(() => { button.inert = false; }, NEW_MS);
    }
    return node;
  }
  function show(doc) {
    const focused = document.activeElement;
    for (const part of [...doc.querySelectorAll('[data-part]')]) { const old = by(part.id); if (old) morph(old, part); }
    if (focused !== document.body && !focused.isConnected) { by('main').focus(); say('What you were on has changed.'); }
  }

  // What comes faster than people see is shown together: of each part only the newest.
  const SHOWN_MS = 100, PART = /<div id="(part-[^"]*)"[^>]* data-part/g, parts = new Map();
  let shownAt = 0, showing = 0;
  const showAll = () => {
    showing = 0; shownAt = performance.now();
    const text = [...parts.values()].join(''); parts.clear(); show(parse(text)); tick();
  };
  function receive(text) {
    const found = [...text.matchAll(PART)];
    found.forEach((each, at) => parts.set(each[1], text.slice(each.index, found[at + 1]?.index)));
    const wait = shownAt + SHOWN_MS - performance.now();
    if (wait <= 0 && !showing) showAll(); else showing ||= setTimeout(showAll, Math.max(0, wait));
  }

  // Live regions.
  const main = document.querySelector('[data-live]');
  const WORDS = { live: 'Live', waiting: 'Reconnecting…', paused: 'Paused', away: 'Not up to date', static: 'Not live' };
  const state = now => { for (const node of document.querySelectorAll('.live')) { node.dataset.state = now; node.textContent = WORDS[now]; } };
  if (main) {
    let source, last = +main.dataset.seq, tries = 0, lost = null, timer, silent, hidden, isPaused = false;
    const stop = () => { clearTimeout(timer); clearTimeout(silent); source?.close(); source = null; };
    const alive = () => { clearTimeout(silent); silent = setTimeout(again, SILENT_S * 1000); };
    const again = () => {                       // The browser itself gives up at a 502.
      stop(); state('waiting'); lost ??= new Date();
      if (tries >= TOLD_TRIES && by('away').hidden) note(`The console does not answer. Since ${lost.toISOString().slice(11, 19)} UTC nothing here moves; it goes on by itself.`);
      timer = setTimeout(start, Math.min(WAIT_MS[1], WAIT_MS[0] * 2 ** tries++) * (.7 + .6 * Math.random()));
    };
    const note = text => { const line = by('away'); line.textContent = text; line.hidden = !text; };
    const away = text => { note(text); state(text ? 'away' : 'live'); };
    const start = () => {
      stop(); if (document.hidden || isPaused) return state('paused');
      const address = new URL(main.dataset.live, location.href); address.searchParams.set('seq', last);
      source = new EventSource(address); alive();
      source.onopen = () => { if (lost) { lost = null; note(''); } tries = 0; state('live'); alive(); };
      source.onmessage = event => {
        last = +event.lastEventId; away(''); alive(); receive(event.data);
      };
      source.addEventListener('away', event => { away(event.data); alive(); });
      source.addEventListener('ping', alive);
      source.onerror = again;
    };
    document.addEventListener('visibilitychange', () => {
      clearTimeout(hidden);
      if (!document.hidden) { if (!source) start(); }
      else hidden = setTimeout(() => { stop(); state('paused'); }, (+main.dataset.hide || HIDDEN_S) * 1000);
    });
    addEventListener('pagehide', stop);
    addEventListener('pageshow', event => { if (event.persisted) start(); });
    addEventListener('online', start);
    for (const button of document.querySelectorAll('.live')) button.addEventListener('click', () => { isPaused = !isPaused; start(); if (showing) { clearTimeout(showing); showAll(); } });
    start();
  }

  // Times that say how far away they are.
  const UNITS = [['d', 86400], ['h', 3600], ['m', 60], ['s', 1]];
  function tick() {
    for (const node of document.querySelectorAll('time[datetime]:not([data-exact])')) {
      const seconds = (Date.now() - Date.parse(node.dateTime)) / 1000, far = Math.abs(seconds);
      const [unit, length] = UNITS.find(each => far >= each[1]) || UNITS[3];
      const text = `${Math.floor(far / length)}${unit}`, said = seconds < 0 ? `in ${text}` : `${text} ago`;
      if (node.textContent !== said) node.textContent = said;
    }
  }
  setInterval(tick, TICK_MS);

  // Forms without a reload. What came of it stands in the page that follows.
  document.addEventListener('submit', async event => {
    const form = event.target, button = event.submitter;
    if (!('enhance' in form.dataset) || button?.hasAttribute('formaction')) return;
    event.preventDefault();
    if (form.getAttribute('aria-busy')) return;
    form.setAttribute('aria-busy', 'true'); say('');
    try {
      const body = new URLSearchParams(new FormData(form, button));
      const headers = { 'vigil-form': '1' }, signal = AbortSignal.timeout(SEND_MS);
      const answer = await fetch(form.action, { method: 'POST', body, headers, signal });
      const to = answer.headers.get('vigil-to');
      if (to === null) throw Error(`the server answered ${answer.status}`);
      const there = new URL(to, location.href);
      if (there.pathname !== location.pathname) { location.assign(there); return; }
      const page = await fetch(there, { signal }), doc = parse(await page.text());
      if (page.ok) show(doc);                   // A form stays as it is while there is no page to show.
      const told = doc.getElementById('say'); if (told) morph(by('say'), told);
    } catch (error) {
      say(`Not sent: ${error.message || error}. Try again.`, true);
    } finally {
      form.removeAttribute('aria-busy');
    }
  });

  // Time sliders: they say their time at once, and the page follows when the thumb is let go, or
  // no key has moved it for a while.
  const KEYS_MS = 900;
  let byKey = false, going;
  const sliderOf = event => {
    const form = event.target.form;
    return event.target.type === 'range' && form && 'slider' in form.dataset ? form : null;
  };
  document.addEventListener('pointerdown', () => { byKey = false; });
  document.addEventListener('keydown', event => { if (event.target.type === 'range') byKey = true; });
  document.addEventListener('input', event => {
    const form = sliderOf(event);
    if (!form) return;
    clearTimeout(going);
    const at = new Date(Date.parse(form.elements.of.value) - event.target.value * 1000);
    form.querySelector('output').textContent = `${at.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
  });
  document.addEventListener('change', event => {
    const form = sliderOf(event);
    if (!form) return;
    clearTimeout(going);
    going = setTimeout(() => form.requestSubmit(), byKey ? KEYS_MS : 0);
  });

  // Copies.
  document.addEventListener('click', async event => {
    const button = event.target.closest?.('[data-copy]');
    if (!button) return;
    await navigator.clipboard?.writeText(button.parentNode.querySelector('pre').textContent);
    say('Copied.');
  });

  // Keys: j and k go through rows, Enter opens one; Ctrl-K goes anywhere.
  const isTyping = node => node.closest?.('input, textarea, select, [contenteditable]');
  const rows = () => [...document.querySelectorAll('[data-row] a[href], td.main a[href]')];
  document.addEventListener('keydown', event => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
      const field = by('go'); if (field) { event.preventDefault(); field.focus(); field.select(); }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key === 'j' || event.key === 'k') {
      const all = rows(), at = all.indexOf(document.activeElement);
      const to = all[Math.max(0, Math.min(all.length - 1, at + (event.key === 'j' ? 1 : -1)))];
      to?.focus(); to?.scrollIntoView({ block: 'nearest' });
    }
    if (event.key === 'a' || event.key === 'd') by(event.key === 'a' ? 'approve' : 'deny')?.focus();
  });
})();
