// The reference in a browser: search, copy, and calls in the session of the dashboard. Without it, all text is there.
const isServed = location.protocol.startsWith('http');
const parts = [...document.querySelectorAll('.reference-part')];
const texts = new Map(parts.map((part) => [part, part.textContent.toLowerCase()]));

const search = document.querySelector('.reference nav input');
const count = document.querySelector('.reference nav [role=status]');
search.addEventListener('input', () => {
  const words = search.value.toLowerCase().split(/\s+/);
  for (const part of parts) part.hidden = !words.every((word) => texts.get(part).includes(word));
  for (const link of document.querySelectorAll('.reference nav a'))
    link.hidden = document.getElementById(link.hash.slice(1))?.hidden === true;
  const found = parts.filter((part) => !part.hidden).length;
  count.textContent = search.value === '' ? '' : `${found} of ${parts.length}`;
});
addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.target.closest('input, textarea')) return;
  event.preventDefault();
  search.focus();
});

function addButton(row, text, run) {
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = text;
  button.addEventListener('click', () => void run(button));
  row.append(button);
  return button;
}

async function session() {
  const answer = await fetch('/dashboard/session').catch(() => undefined);
  return answer?.ok ? ((await answer.json()).csrfToken ?? '') : '';
}

/** Shows a form with the example, which sends it in the session. */
function openForm(part, row) {
  const { method, path, example } = part.dataset;
  const form = document.createElement('form');
  form.innerHTML =
    '<label>Request <textarea rows="8" spellcheck="false"></textarea></label><button>Send</button><pre role="status" tabindex="0" hidden></pre>';
  const [entry, result] = [form.querySelector('textarea'), form.querySelector('pre')];
  entry.value = JSON.stringify(JSON.parse(example), null, 1);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    result.hidden = false;
    result.textContent = '…';
    try {
      const fields = JSON.parse(entry.value);
      const query = method === 'GET' ? `?${new URLSearchParams(fields)}` : '';
      const answer = await fetch(path + query, {
        method,
        headers: { 'x-keyfence-csrf': await session(), 'content-type': 'application/json' },
        ...(method === 'GET' ? {} : { body: JSON.stringify(fields) }),
      });
      result.textContent = `${answer.status}\n${JSON.stringify(await answer.json(), null, 1)}`;
    } catch (error) {
      result.textContent = String(error);
    }
  });
  row.after(form);
  entry.focus();
}

for (const part of parts) {
  const call = part.querySelector('pre.call');
  if (!call) continue;
  if (isServed && part.dataset.path)
    call.textContent = call.textContent.replace('http://127.0.0.1:3000', location.origin);
  const row = document.createElement('div');
  call.after(row);
  addButton(row, 'Copy', async (button) => {
    await navigator.clipboard.writeText(call.textContent).catch(() => getSelection().selectAllChildren(call));
    button.textContent = 'Copied';
  });
  if (isServed && part.dataset.path)
    addButton(row, 'Try it', async (button) => {
      if ((await session()) === '') location.assign('/dashboard/');
      else {
        button.remove();
        openForm(part, row);
      }
    });
}
const link = document.querySelector('header.keyfence a.session');
if (isServed && link)
  void session().then((token) => {
    link.textContent = token ? 'Signed in' : 'Sign in';
  });
