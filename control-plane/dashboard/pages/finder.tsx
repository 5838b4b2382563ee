import { useEffect, useRef, useState } from 'preact/hooks';
import { call, Failure, type Key, looksLikeKey } from '../api/client.ts';
import { Field } from '../forms/forms.tsx';
import { customersOf, useKeysWith } from '../keys/find-keys.ts';
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

/** Foreign secrets may have any form; shorter texts are none. */
const SECRET_CHARACTERS_MIN = 16;
const APIS_OFFERED = '100';
const SHOWN_MAX = 8;

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
  const identities = useIdentities(text);
  const keys = useKeysWith(text);
  const targets = targetsOf(text, {
    ...{ sections: props.sections, apis: apis.data?.apis ?? [], keys },
    identities: [...new Set([...identities, ...customersOf(keys).filter(contains(text))])],
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
            label="A secret, key, request id, identity, API or section"
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
          <Matches targets={targets} hasText={text.trim() !== ''} onOpen={(target) => void open(target)} />
        </form>
      </search>
    </Dialog>
  );
}

function Matches(props: { targets: readonly Target[]; hasText: boolean; onOpen: (target: Target) => void }) {
  const { targets, hasText, onOpen } = props;
  return (
    <>
      {targets.length === 0 && hasText && (
        <p class="quiet" role="status">
          Nothing found; of each API, the newest 20,000 keys were searched.
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

/** Loads identities whose external id contains the text, a moment after the last letter. */
function useIdentities(text: string): readonly string[] {
  const [part, setPart] = useState('');
  const timer = useRef(0);
  useEffect(() => {
    timer.current = window.setTimeout(() => setPart(looksLikeKey(text) ? '' : text.trim()), 200);
    return () => clearTimeout(timer.current);
  }, [text]);
  const load = async () => {
    if (part === '' || part.length > 256) return [];
    const input = { search: part, limit: String(SHOWN_MAX) };
    const { identities } = await call('identities.listIdentities', input).catch(() => ({ identities: [] }));
    return identities.map(({ externalId }) => externalId);
  };
  return useLoad(load, [part]).data ?? [];
}

/** Removes what often stands around a secret: quotes, and `Bearer`. */
const bare = (text: string) =>
  text
    .trim()
    .replace(/^(authorization: *)?bearer +/i, '')
    .replace(/^["'`]|["'`,;]+$/g, '');

const contains = (text: string) => (name: string) => name.toLowerCase().includes(text.trim().toLowerCase());

function targetsOf(
  entry: string,
  among: {
    readonly sections: readonly (readonly [hash: string, name: string])[];
    readonly apis: readonly { readonly id: string; readonly name?: string | undefined }[];
    readonly identities: readonly string[];
    readonly keys: readonly Key[];
  },
): readonly Target[] {
  const { sections, apis, identities, keys } = among;
  const text = bare(entry);
  const has = contains(text);
  const inSections = sections
    .filter(([, name]) => has(name))
    .map(([hash, name]): Target => ({ text: name, kind: 'section', hash }));
  if (text === '') return inSections;
  const secret: Target = {
    text: 'The key with this secret',
    kind: 'the secret is not kept',
    hash: async () => `#/keys/${(await call('keys.whoami', { key: text })).keyId}`,
  };
  if (looksLikeKey(text)) return [secret];
  const isKeyId = /^key_[0-9A-Za-z]{20}$/.test(text);
  // Like the ids that our processes and most tracers make.
  const isHexadecimal = /^[0-9a-f-]{16,40}[0-9a-z]{0,6}$/.test(text);
  const isSecret = !isKeyId && text.length >= SECRET_CHARACTERS_MIN && !/\s/.test(text);
  return [
    ...(isKeyId ? [{ text, kind: 'key', hash: `#/keys/${text}` }] : []),
    ...identities.map((name): Target => ({ text: name, kind: 'identity', hash: identityPage(name) })),
    ...keys.map(
      ({ keyId, apiId, name = keyId, externalId }): Target => ({
        text: name,
        kind: `key in ${apiId}${externalId === undefined ? '' : `, ${externalId}`}`,
        hash: `#/keys/${keyId}`,
      }),
    ),
    ...apis
      .filter(({ id, name = '' }) => has(id) || has(name))
      .map(({ id, name = id }): Target => ({ text: name, kind: 'API', hash: `#/apis/${id}` })),
    ...inSections,
    ...(isSecret && !isHexadecimal ? [secret] : []),
    ...(isSecret ? [refusedRequest(text)] : []),
    ...(isSecret && isHexadecimal ? [secret] : []),
  ].slice(0, SHOWN_MAX);
}

/** The key that a refused request was about. */
const refusedRequest = (requestId: string): Target => ({
  text: 'The key of this refused request',
  kind: 'request id',
  hash: async () => `#/keys/${(await call('verdicts.find', { requestId })).keyId}?request=${requestId}`,
});

/** Opens the finder by ⌘K or Ctrl+K, and for a secret that is pasted outside of a field. */
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
      if (isInField || !looksLikeKey(text)) return;
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
