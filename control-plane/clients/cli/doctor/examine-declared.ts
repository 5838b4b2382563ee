import type { Finding } from '../../../subjects/examine/examination.ts';
import { type Page, pages } from '../pages.ts';
import { count, time } from '../terminal/output.ts';

interface Thing {
  readonly managedBy?: string;
  readonly driftedAt?: number;
}

type Call = <T>(operation: string, input?: object) => Promise<T>;

/** Of more keys, and of more identities, only so many are looked at. */
const LISTED_MAX = 5000;
const SETS_NAMED_MAX = 5;
/** An operator names the cluster and the object. */
const OBJECT = /^([0-9a-f-]{36})\/[0-9a-f-]{36}$/;

/** Names the sets that declare things, and tells how many of these were changed by others. No finding if there are none. */
export async function examineDeclared(call: Call): Promise<Finding[]> {
  const things: Thing[] = [];
  let isAll = true;
  /** Returns what the root key may list, at most LISTED_MAX. */
  const list = async <T extends Thing>(read: () => AsyncIterable<Pick<Page<T>, 'items' | 'cursor'>>) => {
    const items: T[] = [];
    try {
      for await (const page of read()) {
        items.push(...page.items);
        if (page.cursor !== undefined && items.length >= LISTED_MAX) isAll = false;
        if (items.length >= LISTED_MAX) break;
      }
    } catch {
      // Another check tells of a control plane that does not answer; what the root key may not list is left out.
    }
    for (const item of items) if (item.managedBy !== undefined) things.push(item);
    return items;
  };
  const whole = async function* (operation: string, itemsOf = (answer: unknown) => answer as Thing[]) {
    yield { items: itemsOf(await call<unknown>(operation)), cursor: undefined };
  };
  const apis = await list(() => pages<Thing & { id: string }>(call, 'apis.listApis', {}, 'apis'));
  await list(() => whole('permissions.listPermissions'));
  await list(() => whole('permissions.listRoles'));
  await list(() => whole('webhooks.listEndpoints', (answer) => (answer as { endpoints: Thing[] }).endpoints));
  await list(() => pages<Thing>(call, 'identities.listIdentities', {}, 'identities'));
  await list(async function* () {
    for (const { id: apiId } of apis) yield* pages<Thing>(call, 'apis.listKeys', { apiId } as object, 'keys');
  });
  if (things.length === 0) return [];
  const sets = Map.groupBy(things, ({ managedBy = '' }) => managedBy.replace(OBJECT, 'Kubernetes $1'));
  const names = [...sets].toSorted(([, a], [, b]) => b.length - a.length);
  const named = names.slice(0, SETS_NAMED_MAX).map(([name, of]) => `${name} (${count(of.length)})`);
  const rest = names.length > SETS_NAMED_MAX ? ` and ${count(names.length - SETS_NAMED_MAX)} more` : '';
  const drifts = things
    .flatMap(({ driftedAt = 0 }) => (driftedAt === 0 ? [] : [driftedAt]))
    .sort((a, b) => a - b);
  const [first] = drifts;
  const drift = first === undefined ? 'none' : `${count(drifts.length)}, since ${time(first)}`;
  const scope = isAll ? '' : ` (of the first ${count(LISTED_MAX)} keys or identities)`;
  return [
    {
      check: 'declared',
      found: `${count(things.length)} things${scope} by ${named.join(', ')}${rest}; changed by others: ${drift}`,
    },
  ];
}
