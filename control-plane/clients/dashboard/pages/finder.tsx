import { useEffect, useState } from 'preact/hooks';
import { call, Failure, type Key, looksLikeKey, may } from '../api/client.ts';
import { Field } from '../forms/forms.tsx';
import { customersOf, hasAllWords, longestWord, useKeysWith, usePaused } from '../keys/find-keys.ts';
import { Dialog } from '../parts/dialogs.tsx';
import { identityPage } from '../parts/identity-state.tsx';
import { Problem, useLoad } from '../parts/loading.tsx';

/** Something that the finder can open. */
interface Target {
  readonly text: string;
  readonly kind: string;
  /** The address of its page, or a function that finds it. */
  readonly hash: string | (() => Promise<string>);
}
const to = (text: string, kind: string, hash: Target['hash']): Target => ({ text, kind, hash });

/** Foreign secrets may have any form; shorter texts are none. */
const SECRET_CHARACTERS_MIN = 16;
const APIS_OFFERED = '100';
const SHOWN_MAX = 10;
const NO_MATCH = 'Nothing found; of each of the first 20 APIs, the newest 20,000 keys were searched.';

/**
 * The dialog that opens whatever its text names: a secret, the id of a key or of a refused request, an identity, an
 * API, or a section.
 * A secret is sent to `keys.whoami`, and is in no address.
 */
export function Finder(props: {
  start: string;
  sections: readonly (readonly [hash: string, name: string])[];
  onClose: () => void;
}) {
  const [text, setText] = useState(props.start);
  const [failure, setFailure] = useState<Failure>();
  const apis = useLoad(() => call('apis.listApis', { limit: APIS_OFFERED }).catch(() => ({ apis: [] })), []);
  const others = useLoad(() => listOthers().catch(() => []), []);
  const plain = text.replace(VERB, '');
  const paused = usePaused(plain);
  const identities = useIdentities(paused);
  const { data: keys = [], busy } = useKeysWith(paused);
  const targets = targetsOf(text, {
    ...{ sections: props.sections, apis: apis.data?.apis ?? [], others: others.data ?? [], keys },
    identities: [...new Set([...identities, ...customersOf(keys)])].filter(hasAllWords(plain)),
  });
  const open = async ({ hash }: Target) => {
    try {
      location.hash = typeof hash === 'string' ? hash : await hash();
      props.onClose();
    } catch (error) {
      setFailure(error instanceof Failure ? error : new Failure('INTERNAL', String(error)));
    }
  };
  const openFirst = (event: Event) => {
    event.preventDefault();
    if (targets[0]) void open(targets[0]);
  };
  return (
    <Dialog title="Find" onClose={props.onClose}>
      <search>
        <form class="finder" onSubmit={openFirst} onKeyDown={goToNext}>
          <Field
            label="A secret, key, request id, customer, API or section"
            hint="Enter opens the first"
            type="search"
            spellcheck={false}
            value={text}
            onInput={(event) => {
              setText(event.currentTarget.value);
              setFailure(undefined);
            }}
          />
          {failure !== undefined && <Problem failure={failure} />}
          <Matches
            targets={targets}
            missing={text.trim() === '' ? '' : busy || paused !== plain ? 'Searching…' : NO_MATCH}
            onOpen={(target) => void open(target)}
          />
        </form>
      </search>
    </Dialog>
  );
}

function Matches(props: { targets: readonly Target[]; missing: string; onOpen: (target: Target) => void }) {
  const { targets, missing, onOpen } = props;
  return (
    <>
      {targets.length === 0 && missing && (
        <p class="quiet" role="status">
          {missing}
        </p>
      )}
      <ul aria-label="Matches">
        {targets.map((target) => (
          <li key={`${target.kind} ${target.text} ${typeof target.hash === 'string' ? target.hash : ''}`}>
            <button type="button" onClick={() => onOpen(target)}>
              <bdi>{target.text}</bdi> <small>{target.kind}</small>
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

/** Moves the focus between the input and the matches, for arrow keys. */
function goToNext(event: KeyboardEvent): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined) return;
  const form = event.currentTarget as HTMLFormElement;
  const stops = [...form.querySelectorAll<HTMLElement>('input, button')];
  const at = stops.indexOf(document.activeElement as HTMLElement);
  event.preventDefault();
  stops[(at + step + stops.length) % stops.length]?.focus();
}

/** Loads identities whose external id contains the text. */
function useIdentities(text: string): readonly string[] {
  const part = liftedFrom(text) === undefined ? longestWord(text) : '';
  const load = async () => {
    if (part === '' || part.length > 256) return [];
    const input = { search: part, limit: String(SHOWN_MAX) };
    const { identities } = await call('identities.listIdentities', input).catch(() => ({ identities: [] }));
    return identities.map(({ externalId }) => externalId);
  };
  return useLoad(load, [part]).data ?? [];
}

/** Verbs that may stand first; what is meant is on the page of what follows. */
const VERB = /^(?:stop|disable|enable|rotate|open|go(?: to)?|find)\s+(?=\S)/i;
const NEW = /^(?:new|create)\s+/i;

/** The parts of a text that may be a secret or an id, such as those of a line of a log. */
const tokensOf = (text: string) => text.split(/[\s"'`,;:=(){}[\]<>]+/).filter((token) => token !== '');
/** Like the ids that our processes and most tracers make. */
const isRequestId = (token: string) => /^[0-9a-f-]{16,40}[0-9a-z]{0,6}$/.test(token) && /\d/.test(token);

/** Returns the secret or, if there is none, the request id that a text has in it. */
const liftedFrom = (text: string): string | undefined =>
  tokensOf(text).find(looksLikeKey) ?? tokensOf(text).find(isRequestId);

function targetsOf(
  entry: string,
  among: {
    readonly sections: readonly (readonly [hash: string, name: string])[];
    readonly apis: readonly { readonly id: string; readonly name?: string | undefined }[];
    readonly others: readonly Target[];
    readonly identities: readonly string[];
    readonly keys: readonly Key[];
  },
): readonly Target[] {
  const { sections, apis, others, identities, keys } = among;
  const lifted = liftedFrom(entry);
  const nameOf = (apiId: string) => apis.find(({ id }) => id === apiId)?.name ?? apiId;
  const secretOf = (key: string) =>
    to('The key with this secret', 'the secret is not kept', async () => {
      const { keyId } = await call('keys.whoami', { key });
      return `#/keys/${keyId}`;
    });
  if (lifted !== undefined && looksLikeKey(lifted)) return [secretOf(lifted)];
  const text = entry.trim().replace(/^["'`]|["'`,;]+$/g, '');
  if (text === '') return sections.map(([hash, name]) => to(name, 'section', hash));
  const has = hasAllWords(text.replace(VERB, ''));
  const creations = NEW.test(text)
    ? [
        ...apis.map(({ id, name = id }) => to(`New key in ${name}`, 'do', `#/apis/${id}?new`)),
        ...Object.entries(CREATIONS).map(([thing, hash]) => to(`New ${thing}`, 'do', hash)),
      ].filter(({ text: name }) => hasAllWords(text.replace(NEW, ''))(name))
    : [];
  const isKeyId = /^key_[0-9A-Za-z]{20}$/.test(text);
  const isSecret = !isKeyId && text.length >= SECRET_CHARACTERS_MIN && !/\s/.test(text);
  return [
    ...creations,
    ...(isKeyId ? [to(text, 'key', `#/keys/${text}`)] : []),
    ...identities.map((name) => to(name, 'customer', identityPage(name))),
    ...keys.map(({ keyId, apiId, name = keyId, externalId }) =>
      to(name, `key in ${[nameOf(apiId), externalId].filter(Boolean).join(', ')}`, `#/keys/${keyId}`),
    ),
    ...apis
      .filter(({ id, name = '' }) => has(`${id} ${name}`))
      .map(({ id, name = id }) => to(name, 'API', `#/apis/${id}`)),
    ...others.filter(({ text: name, kind }) => has(`${name} ${kind}`)),
    ...sections.filter(([, name]) => has(name)).map(([hash, name]) => to(name, 'section', hash)),
    ...(isSecret && lifted === undefined ? [secretOf(text)] : []),
    ...(lifted !== undefined ? [refusedRequest(lifted)] : isSecret ? [refusedRequest(text)] : []),
    ...(isSecret && lifted !== undefined ? [secretOf(text)] : []),
  ].slice(0, SHOWN_MAX);
}

/** The pages whose form makes something new. */
const CREATIONS = {
  API: '#/apis?new',
  customer: '#/identities?new',
  role: '#/roles?new',
  'root key': '#/root-keys?new',
  'webhook endpoint': '#/webhooks?new',
};

/** Loads the roles, root keys and webhooks, as far as this root key may list them. */
async function listOthers(): Promise<readonly Target[]> {
  const [roles, { rootKeys }, { endpoints }] = await Promise.all([
    may('root.*.read_role') ? call('permissions.listRoles') : [],
    may('root.*.read_root_key') ? call('rootKeys.listRootKeys') : { rootKeys: [] },
    may('root.*.read_webhook') ? call('webhooks.listEndpoints') : { endpoints: [] },
  ]);
  return [
    ...roles.map(({ name }) => to(name, 'role', `#/roles?${new URLSearchParams({ find: name })}`)),
    ...rootKeys.map(({ name }) => to(name, 'root key', '#/root-keys')),
    ...endpoints.map(({ endpointId, name, url }) =>
      to(name ?? new URL(url).host, 'webhook', `#/webhooks/${endpointId}`),
    ),
  ];
}

/** The key that a refused request was about. */
const refusedRequest = (requestId: string) =>
  to('The key of this refused request', 'request id', async () => {
    const { keyId } = await call('verdicts.find', { requestId });
    return `#/keys/${keyId}?request=${requestId}`;
  });

/** Opens the finder by ⌘K or Ctrl+K, and for a secret or a request id in what is pasted outside of a field. */
export function useFinder(isEnabled: boolean) {
  const [start, setStart] = useState<string>();
  useEffect(() => {
    if (!isEnabled) return;
    const key = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== 'k' || !(event.metaKey || event.ctrlKey)) return;
      event.preventDefault();
      setStart((before) => before ?? '');
    };
    const paste = (event: ClipboardEvent) => {
      const text = event.clipboardData?.getData('text').trim() ?? '';
      const isInField = event.target instanceof Element && event.target.closest('input, textarea, dialog');
      if (isInField || liftedFrom(text) === undefined) return;
      // The field of the dialog takes the focus before the browser would paste.
      event.preventDefault();
      setStart(text);
    };
    addEventListener('keydown', key);
    addEventListener('paste', paste);
    return () => {
      removeEventListener('keydown', key);
      removeEventListener('paste', paste);
    };
  }, [isEnabled]);
  return { start, open: () => setStart(''), close: () => setStart(undefined) };
}
