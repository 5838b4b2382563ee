import type { ComponentChildren } from 'preact';
import { call, type Fleet, type Key, may, serverNow } from '../api/client.ts';
import { COUNTERS } from '../api/verdicts.ts';
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
  verifier: 'Verifier',
  refused: 'Refused',
  webhook: 'Webhook',
  finding: 'Finding',
  ending: 'Expiring',
};
const RANKS = Object.keys(KINDS);

/** Something that wants somebody to act: what it is, where to look, and what to do at once. */
interface Trouble {
  readonly kind: keyof typeof KINDS;
  readonly text: ComponentChildren;
  readonly id: string;
  readonly hash?: string;
  /** An action, by its name; resolves when it is done. */
  readonly act?: readonly [name: string, run: () => Promise<unknown>];
}

/** Loads what wants attention besides the verifiers, as far as this root key may see it. */
export function useInbox() {
  const load = async () => {
    const [apis, endpoints, findings] = await Promise.all([
      call('apis.listApis', { limit: APIS_MAX }).catch(() => ({ apis: [] })),
      may('root.*.read_webhook') ? call('webhooks.listEndpoints').catch(() => NO_ENDPOINTS) : NO_ENDPOINTS,
      call('fleet.listFindings').catch(() => undefined),
    ]);
    const readable = apis.apis.filter(({ id }) => may(`api.${id}.read_key`));
    const keys = await Promise.all(readable.map(({ id }) => wantedKeys(id).catch(unexamined(id))));
    const ofFindings = findings?.findings.flatMap(({ check, change }): Trouble[] =>
      change ? [{ kind: 'finding', id: `${check} ${change}`, text: `${check}: ${change}.` }] : [],
    );
    const troubles = [...keys.flat(), ...endpoints.endpoints.flatMap(endpointTrouble), ...(ofFindings ?? [])];
    return { troubles, isExamined: findings !== undefined };
  };
  const { data = { troubles: [], isExamined: true }, reload } = useLoad(load, [], REFRESH_MS);
  return { ...data, reload };
}

const NO_ENDPOINTS = {
  endpoints: [] as Awaited<ReturnType<typeof call<'webhooks.listEndpoints'>>>['endpoints'],
};

/** The keys of an API that leaked and are still enabled, or end soon although they are used. */
async function wantedKeys(apiId: string): Promise<Trouble[]> {
  // In this order, one call examines all keys instead of a thousand.
  const order = { limit: KEYS_MAX, sort: 'expires', state: 'enabled' };
  const list = (conditions: object) => call('apis.listKeys', { apiId, ...order, ...conditions });
  const [leaked, ending] = await Promise.all([
    list({ leaked: 'true' }),
    list({ expiresBefore: String(serverNow() + ENDS_MS) }),
  ]);
  const inUse = ending.keys.filter(({ lastUsedAt = 0 }) => lastUsedAt > serverNow() - DAY_MS);
  return [...leaked.keys.map(leakTrouble), ...endTrouble(inUse, ending.cursor !== undefined)];
}

/** An API that cannot be examined is no quiet one. */
const unexamined =
  (apiId: string) =>
  (error: Error): Trouble[] => [
    {
      kind: 'finding',
      id: apiId,
      hash: `#/apis/${apiId}?filter=state:leaked`,
      text: `${apiId}: leaked and expiring keys are not known: ${error.message}`,
    },
  ];

const nameOf = ({ name, keyId }: Key) => <bdi>{name ?? keyId}</bdi>;

const leakTrouble = (key: Key): Trouble => ({
  kind: 'leaked',
  id: key.keyId,
  hash: `#/keys/${key.keyId}`,
  text: (
    <>
      {nameOf(key)} was found in public <Time at={key.leaked?.at} /> and is still accepted
    </>
  ),
  ...(may(`api.${key.apiId}.update_key`)
    ? { act: ['Disable', () => call('keys.updateKey', { keyId: key.keyId, enabled: false })] as const }
    : {}),
});

/** Keys of one API that end, the next first, as one trouble. */
function endTrouble([key, ...others]: readonly Key[], hasMore: boolean): Trouble[] {
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
      {end}, and {hasMore && 'at least'} {counted(others.length, 'other key')} of {apiId} within a week
    </>
  );
  return [{ kind: 'ending', id: apiId, hash: `#/apis/${apiId}?filter=expires:7d`, text }];
}

function endpointTrouble(endpoint: (typeof NO_ENDPOINTS)['endpoints'][number]): Trouble[] {
  const { endpointId, name, url, state, failures, dropped, dead } = endpoint;
  const lost = dropped + dead;
  if (state !== 'failing' && lost === 0) return [];
  const failure = state === 'failing' ? `${counted(failures, 'attempt')} in a row failed` : '';
  const loss = lost > 0 ? `${counted(lost, 'event')} lost` : '';
  return [
    {
      kind: 'webhook',
      id: endpointId,
      hash: `#/webhooks/${endpointId}`,
      text: (
        <>
          <bdi>{name ?? new URL(url).host}</bdi>: {[failure, loss].filter(Boolean).join('; ')}
        </>
      ),
      ...(may('root.*.update_webhook')
        ? { act: ['Test', () => call('webhooks.test', { endpointId })] as const }
        : {}),
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
      act: ['Show keys', async () => show(refused)],
    },
  ];
}

/** Formats a share of verdicts; of none, for which no verifier may have reported yet, nothing is known. */
export const share = (part: number, whole: number) =>
  whole === 0 ? '–' : `${((100 * part) / whole).toFixed(1)} %`;

/** The troubles, worst first, each with where to look and what to do. */
export function Inbox(props: { troubles: readonly Trouble[]; isExamined: boolean; reload: () => void }) {
  const { isExamined, reload } = props;
  const troubles = props.troubles.toSorted((a, b) => RANKS.indexOf(a.kind) - RANKS.indexOf(b.kind));
  const count = troubles.length === 1 ? '1 thing needs' : `${troubles.length} things need`;
  return (
    <section class={`panel attention ${troubles.length > 0 ? 'wanted' : ''}`} aria-label="Attention">
      <h2>{troubles.length === 0 ? 'All quiet' : `${count} attention`}</h2>
      {troubles.length === 0 ? (
        <p class="quiet">
          No key leaked or ends soon, all verifiers report and follow their APIs, all webhooks are delivered
          {isExamined ? ', and the settings of Redis fit.' : '; Redis could not be examined.'}
        </p>
      ) : (
        <ul class="plain inbox">
          {troubles.map((trouble) => (
            <Item key={`${trouble.kind} ${trouble.id}`} of={trouble} onDone={reload} />
          ))}
        </ul>
      )}
    </section>
  );
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
