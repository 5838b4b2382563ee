import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { call, listVerifiers, may } from '../api/client.ts';
import { Code } from '../changes/copy-as.tsx';
import { ActionForm, Field, type FormEntry } from '../forms/forms.tsx';
import { useLoad } from '../parts/loading.tsx';

/** The address at which a verifier of `npm start` listens, and beside each API by default. */
const VERIFIER = 'http://127.0.0.1:3001';
const REFRESH_MS = 1000;

/** The way from nothing to the first verification, in three steps. */
export function FirstRun(props: { apiId: string | undefined }) {
  const [apiId, setApiId] = useState(props.apiId);
  const [key, setKey] = useState<string>();
  const createApi = async (entry: FormEntry) => {
    setApiId((await call('apis.createApi', { name: entry('name') })).apiId);
    return undefined;
  };
  const createKey = async (entry: FormEntry) => {
    setKey((await call('keys.createKey', { apiId, name: entry('name') })).key);
    return undefined;
  };
  return (
    <section aria-label="First steps">
      <h2>From nothing to the first verification</h2>
      <Step number={1} title="Create an API, the group that your keys belong to" isDone={apiId !== undefined}>
        <ActionForm label="First API" action="Create API" run={createApi}>
          <Field label="Name" name="name" required maxLength={256} defaultValue="My API" />
        </ActionForm>
      </Step>
      {apiId !== undefined && (
        <Step number={2} title="Create a key for a client" isDone={key !== undefined}>
          <ActionForm label="First key" action="Create key" run={createKey}>
            <Field label="Name" name="name" required maxLength={256} defaultValue="First client" />
          </ActionForm>
        </Step>
      )}
      {apiId !== undefined && key !== undefined && <Verify apiId={apiId} secret={key} />}
    </section>
  );
}

function Step(props: { number: number; title: string; isDone: boolean; children: ComponentChildren }) {
  const { number, title, isDone, children } = props;
  return (
    <div class={`panel ${isDone ? 'done' : ''}`}>
      <p role="status">
        <strong>
          {number}. {title}
        </strong>
        {isDone && ' – done'}
      </p>
      {!isDone && children}
    </div>
  );
}

/** The last step, which notices the verification. */
function Verify({ apiId, secret }: { apiId: string; secret: string }) {
  const [isDone, setDone] = useState(false);
  const [verifier, setVerifier] = useState(VERIFIER);
  const watch = async () => {
    if (isDone || !may('root.*.read_fleet')) return;
    const verifiers = await listVerifiers();
    if (verifiers.some(({ apis }) => apis.some((api) => api.apiId === apiId))) setDone(true);
  };
  useLoad(watch, [isDone], REFRESH_MS);
  const body = JSON.stringify({ key: secret });
  return (
    <div class={`panel ${isDone ? 'done' : ''}`}>
      <p role="status">
        <strong>3. Verify the key, as your API or gateway will</strong>
        {isDone ? ' – done: a verifier answered.' : ' – waiting for the first verification…'}
      </p>
      <p class="quiet">
        The secret is shown here and never again. Enter where your verifier listens, if it is not there:
      </p>
      <Field
        label="Address of the verifier"
        value={verifier}
        onInput={(event) => setVerifier(event.currentTarget.value)}
      />
      <Code
        of="curl"
        text={`curl -s ${verifier}/v1/keys.verifyKey -H 'content-type: application/json' -d '${body}'`}
      />
      <Code
        of="CLI"
        text={`KEYFENCE_VERIFIER_URL=${verifier} KEYFENCE_KEY=${secret} npx keyfence keys verify`}
      />
      <Code
        of="JavaScript"
        text={`const answer = await fetch('${verifier}/v1/keys.verifyKey', {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(${body}),
});
console.log(await answer.json());`}
      />
      {isDone && (
        <p>
          <a href={`#/apis/${apiId}`}>To the keys of the API</a>
        </p>
      )}
    </div>
  );
}
