import type { ComponentChildren } from 'preact';
import { call, Failure, type Fleet, type Key, may, serverNow } from '../api/client.ts';
import { COUNTERS } from '../api/verdicts.ts';
import { type Apply, useChange } from '../changes/change.tsx';
import { Badge } from '../parts/badge.tsx';
import { counted } from '../parts/counted.ts';
import { silenceText } from '../parts/fleet.tsx';
import { useAction, useLoad } from '../parts/loading.tsx';
import { duration, Time } from '../parts/time.tsx';
import type { Refused } from '../usage/refused-keys.tsx';
import { LENGTHS, type minutesOfAll } from '../usage/usage-query.ts';

const REFRESH_MS = 20_000;
const APIS_MAX = '20';
const KEYS_MAX = '20';
const DAY_MS = 86_400_000;
/** A key whose end needs attention ends within the first, and was used within the second. */
const ENDS_MS = 7 * DAY_MS;
/** Age of a report that needs attention; a report is due every few seconds. */
const LATE_MS = 20_000;

/** A share of refusals that needs attention, if there are enough requests to speak of a share. */
const REFUSED_MAX = 0.1;
const REQUESTS_MIN = 20;

/** The kinds of troubles, worst first. */
const KINDS = {
  leaked: 'Leaked',
  unchecked: 'Not checked',
  verifier: 'Verifier',
  refused: 'Refused',
  webhook: 'Webhook',
  finding: 'Finding',
  ending: 'Expiring',
};
const RANKS = Object.keys(KINDS);

/** Something that wants somebody to act: what it is, where to look, and what to do at once. */
export interface Trouble {
  readonly kind: keyof typeof KINDS;
  readonly text: ComponentChildren;
  readonly id: string;
  readonly hash?: string;
  /** An action, by its name; resolves when it is done. */
  readonly act?: readonly [name: string, run: () => Promise<unknown>];
}

/**
 * Loads what wants attention besides the verifiers, as far as this root key may see it. What could not be checked is a
 * trouble, too. `troubles` is undefined until every check is back.
 */
export function useInbox() {
  const { apply, receipts } = useChange(() => reload());
  const load = async () => {
    const [keys, endpoints, findings] = await Promise.all([
      checked('Keys', async () => {
        const { apis } = await call('apis.listApis', { limit: APIS_MAX });
        const readable = apis.filter(({ id }) => may(`api.${id}.read_key`));
        return (await Promise.all(readable.map((api) => wantedKeys(api, apply)))).flat();
      }),
      checked('Webhooks', async () => {
        if (!may('root.*.read_webhook')) return [];
        const { endpoints } = await call('webhooks.listEndpoints');
        return endpoints.flatMap(endpointTrouble);
      }),
      checked('Redis', async () => (await call('fleet.listFindings')).findings.flatMap(findingTrouble)),
    ]);
    return [...keys, ...endpoints, ...findings];
  };
  const { data, reload } = useLoad(load, [], REFRESH_MS);
  return { troubles: data, reload, receipts };
}

/** Runs a check. What could not be checked wants attention: it is not quiet there. */
async function checked(name: string, check: () => Promise<readonly Trouble[]>): Promise<readonly Trouble[]> {
  try {
    return await check();
  } catch (error) {
    const failure = error instanceof Failure ? error : new Failure('INTERNAL', String(error));
    if (failure.code === 'SESSION_OVER') throw failure;
    return uncheckedTrouble(name, failure);
  }
}

/** Says that something could not be checked, and why. */
export const uncheckedTrouble = (name: string, { message }: Failure): Trouble[] => [
  { kind: 'unchecked', id: name, text: `${name} could not be checked: ${message}.` },
];

/** A finding as a trouble. Endpoints that are gone have troubles of their own. */
const findingTrouble = ({ check, change }: Finding): Trouble[] =>
  change && !(check === 'webhooks' && may('root.*.read_webhook'))
    ? [{ kind: 'finding', id: `${check} ${change}`, text: `${check}: ${change}.` }]
    : [];

type Finding = Awaited<ReturnType<typeof call<'fleet.listFindings'>>>['findings'][number];
type Endpoint = Awaited<ReturnType<typeof call<'webhooks.listEndpoints'>>>['endpoints'][number];
type Api = Awaited<ReturnType<typeof call<'apis.listApis'>>>['apis'][number];

/** The keys of an API that leaked and are still enabled, or end soon although they are used. */
async function wantedKeys({ id: apiId, name = apiId }: Api, apply: Apply): Promise<readonly Trouble[]> {
  return checked(`Leaked and expiring keys of ${name}`, async () => {
    // In this order, one call examines all keys instead of a thousand.
    const order = { limit: KEYS_MAX, sort: 'expires', state: 'enabled' };
    const list = (conditions: object) => call('apis.listKeys', { apiId, ...order, ...conditions });
    const [leaked, ending] = await Promise.all([
      list({ leaked: 'true' }),
      list({ expiresBefore: String(serverNow() + ENDS_MS) }),
    ]);
    const inUse = ending.keys.filter(({ lastUsedAt = 0 }) => lastUsedAt > serverNow() - DAY_MS);
    return [
      ...leaked.keys.map((key) => leakTrouble(key, apply)),
      ...endTrouble(inUse, ending.cursor !== undefined, name),
    ];
  });
}

const nameOf = ({ name, keyId }: Key) => <bdi>{name ?? keyId}</bdi>;

const leakTrouble = (key: Key, apply: Apply): Trouble => ({
  kind: 'leaked',
  id: key.keyId,
  hash: `#/keys/${key.keyId}`,
  text: (
    <>
      {nameOf(key)} was found in public <Time at={key.leaked?.at} /> and is still accepted
    </>
  ),
  ...(may(`api.${key.apiId}.update_key`)
    ? { act: ['Disable', () => apply(key, `Disabled ${key.name ?? key.keyId}`, ...DISABLE)] as const }
    : {}),
});

const DISABLE = [{ enabled: false }, { enabled: true }] as const;

/** Keys of one API that end, the next first, as one trouble. */
function endTrouble([key, ...others]: readonly Key[], hasMore: boolean, api: string): Trouble[] {
  if (!key) return [];
  const { keyId: id, apiId, expires } = key;
  const end = (
    <>
      {nameOf(key)} is in use and ends <Time at={expires} />
    </>
  );
  if (others.length === 0) return [{ kind: 'ending', id, hash: `#/keys/${id}?tab=access`, text: end }];
  const text = (
    <>
      {end}, and {hasMore && 'at least'} {counted(others.length, 'other key')} of {api} within a week
    </>
  );
  return [{ kind: 'ending', id: apiId, hash: `#/apis/${apiId}?filter=expires:7d`, text }];
}

function endpointTrouble(endpoint: Endpoint): Trouble[] {
  const { endpointId, name, url, state, failures, dropped, dead, passed, goneAt } = endpoint;
  const lost = dropped + dead;
  const isGone = state === 'disabled' && goneAt !== undefined;
  if (state !== 'failing' && lost === 0 && !isGone) return [];
  const texts = [
    isGone && `answered that it is gone, and was disabled; ${counted(passed, 'event')} passed since`,
    state === 'failing' && `${counted(failures, 'attempt')} in a row failed`,
    lost > 0 && `${counted(lost, 'event')} lost`,
  ];
  const act = isGone
    ? (['Enable', () => call('webhooks.updateEndpoint', { endpointId, enabled: true })] as const)
    : (['Test', () => call('webhooks.test', { endpointId })] as const);
  return [
    {
      kind: 'webhook',
      id: endpointId,
      hash: `#/webhooks/${endpointId}`,
      text: (
        <>
          <bdi>{name ?? new URL(url).host}</bdi>: {texts.filter(Boolean).join('; ')}
        </>
      ),
      ...(may('root.*.update_webhook') ? { act } : {}),
    },
  ];
}

/** Describes problems of verifiers that an operator should look at. */
export function troublesOf(fleet: Fleet): Trouble[] {
  const { verifiers } = fleet;
  const trouble = (text: string): Trouble => ({ kind: 'verifier', id: text, text, hash: '#/fleet' });
  if (fleet.isSilent) return [trouble(`${silenceText(fleet)}.`)];
  if (verifiers.length === 0)
    return [trouble('No verifier reports itself: nobody verifies keys, or none reaches Redis.')];
  const versions = new Set(verifiers.map(({ version }) => version));
  const each = verifiers.flatMap(({ host, id, apis, reportedAt }) => {
    const name = `${host} ${id.slice(-6)}`;
    const lateMs = serverNow() - reportedAt;
    const behind = apis.filter(({ state }) => state !== 'live');
    const lagging = apis.filter(({ state, lag }) => state === 'live' && lag > 0);
    return [
      ...(lateMs > LATE_MS ? [`${name} last reported itself ${duration(lateMs)} ago.`] : []),
      ...behind.map(({ apiId, state }) =>
        state === 'lapsed'
          ? `${name} lost its lease on ${apiId}: it asks Redis for each key.`
          : `${name} is not in sync with ${apiId}.`,
      ),
      ...lagging.map(({ apiId, lag }) => `${name} is ${counted(lag, 'change')} behind in ${apiId}.`),
    ].map(trouble);
  });
  return versions.size === 1
    ? each
    : [trouble(`Verifiers are of ${versions.size} versions: ${[...versions].join(', ')}.`), ...each];
}

/** Says if a large part of the requests in some minutes was refused. @param show shows the keys of most refusals */
export function refusalTrouble(
  minutes: Awaited<ReturnType<typeof minutesOfAll>>,
  show: (refused: Refused) => void,
): Trouble[] {
  const [allowed = 0, ...refusals] = COUNTERS.map(({ field }) =>
    minutes.reduce((sum, minute) => sum + minute[field], 0),
  );
  const count = refusals.reduce((sum, each) => sum + each, 0);
  const total = allowed + count;
  const kind = COUNTERS[refusals.indexOf(Math.max(...refusals)) + 1];
  const [first, last] = [minutes[0], minutes.at(-1)];
  if (!kind || !first || !last || total < REQUESTS_MIN || count <= REFUSED_MAX * total) return [];
  const time = `last ${counted(minutes.length, 'minute')}`;
  // The running minute, too.
  const until = String(last.time + 2 * LENGTHS.minute - 1);
  const refused = { kind, time, since: String(first.time), until };
  return [
    {
      ...{ kind: 'refused', id: 'refused' },
      text: `${share(count, total)} of ${total.toLocaleString()} requests were refused in the ${time}, most of them: ${kind.name}`,
      act: ['Show customers', async () => show(refused)],
    },
  ];
}

/** Formats a share of verdicts; of none, for which no verifier may have reported yet, nothing is known. */
export const share = (part: number, whole: number) =>
  whole === 0 ? '–' : `${((100 * part) / whole).toFixed(1)} %`;

/** The troubles, worst first, each with where to look and what to do; undefined = not every check is back. */
export function Inbox(props: { troubles: readonly Trouble[] | undefined; reload: () => void }) {
  const troubles = props.troubles?.toSorted((a, b) => RANKS.indexOf(a.kind) - RANKS.indexOf(b.kind));
  const state = !troubles ? 'checking' : troubles.length > 0 ? 'wanted' : 'good';
  return (
    <section class={`panel attention ${state}`} aria-label="Attention" aria-busy={!troubles}>
      <h2>{titleOf(troubles)}</h2>
      {!troubles ? (
        <p class="quiet">Keys, verifiers, webhooks and the settings of Redis are looked at.</p>
      ) : troubles.length === 0 ? (
        <p class="quiet">
          No key leaked or ends soon, all verifiers report and follow their APIs, all webhooks are delivered,
          and the settings of Redis fit.
        </p>
      ) : (
        <ul class="plain inbox">
          {troubles.map((trouble) => (
            <Item key={`${trouble.kind} ${trouble.id}`} of={trouble} onDone={props.reload} />
          ))}
        </ul>
      )}
    </section>
  );
}

function titleOf(troubles: readonly Trouble[] | undefined): string {
  if (!troubles) return 'Checking…';
  if (troubles.length === 0) return 'All quiet';
  return troubles.length === 1 ? '1 thing needs attention' : `${troubles.length} things need attention`;
}

function Item({ of: { kind, text, hash, act }, onDone }: { of: Trouble; onDone: () => void }) {
  const { busy, run, problem } = useAction();
  const [name, action] = act ?? [];
  return (
    <li>
      <Badge kind={kind === 'leaked' ? 'bad' : 'warn'}>{KINDS[kind]}</Badge>
      <span>{text}</span>
      {hash && <a href={hash}>Open</a>}
      {name && action && (
        <button
          type="button"
          class="small"
          aria-disabled={busy}
          onClick={() => void run(() => action().then(onDone))}
        >
          {name}
        </button>
      )}
      {problem}
    </li>
  );
}
