import { scheduler } from 'node:timers/promises';
import { styleText } from 'node:util';
import type { Command } from 'commander';
import type { Api, Refusal } from '../answers.ts';
import { type Client, callPatiently } from '../client.ts';
import { CliError } from '../exit.ts';
import { commandAt } from '../from-operations.ts';
import { apiIdOf } from '../key-reference.ts';
import { pages } from '../pages.ts';
import type { Session } from '../session.ts';
import { count, GAP, printable, time } from '../terminal/output.ts';
import { Progress } from '../terminal/progress.ts';
import { stopOnInterrupt } from './checkpoint.ts';

/** Time between two looks, for which verifiers report each second. */
const PERIOD_MS = 1000;
/** Maximum number of APIs that are followed, unless one is named. */
const APIS_MAX = 100;
/** Number of refusals at the start that were there already. */
export const EARLIER_MAX = 10;

interface RefusalOfKey extends Refusal {
  readonly apiId: string;
  readonly keyId: string;
  readonly name?: string;
  readonly start?: string;
}
type TailOptions = Readonly<Partial<Record<'api' | 'code' | 'customer', string>>>;
interface Refusals {
  readonly refusals: readonly Omit<RefusalOfKey, 'apiId'>[];
  readonly cursor: string;
  readonly missed: number;
}

/** Adds `keyfence tail`. */
export function tailCommand(program: Command, session: Session): void {
  const help = `show the last ${EARLIER_MAX} refusals of keys, and follow them until Ctrl-C; while it runs, verifiers report those of 10 APIs each second, others every USAGE_PERIOD_MS`;
  commandAt(program, 'tail', help, ['tail --refused', 'tail --refused --api shop --json'])
    .option('--refused', 'refusals, which is all that can be followed')
    .option('--api <apiId>', 'only those of this API, by its id or its name')
    .option('--code <code>', 'only refusals with this verdict, such as RATE_LIMITED')
    .option('--customer <externalId>', 'only those of this customer')
    .action(async ({ api: reference, code, customer: identity }: TailOptions) => {
      const client = await session.controlPlane();
      const api = reference === undefined ? undefined : await apiIdOf(client, reference);
      const names = api === undefined ? await apisIn((...request) => client.call(...request)) : new Map();
      const stop = stopOnInterrupt();
      const { say } = new Progress(session.json);
      const call: Client['call'] = (operation, input = {}) =>
        callPatiently(client, operation, input, stop, say, Number.POSITIVE_INFINITY);
      const cursors = new Map<string, string>();
      const look = async (): Promise<RefusalOfKey[]> => {
        const news: RefusalOfKey[] = [];
        for (const apiId of api === undefined ? (await apisIn(call)).keys() : [api]) {
          for (let isMore = true; isMore; ) {
            const after = cursors.get(apiId);
            const input = { apiId, after, limit: after === undefined ? EARLIER_MAX : 100 };
            const page = await call<Refusals>('apis.listRefusals', input).catch((error: CliError) => {
              if (api !== undefined || error.code !== 'NOT_FOUND') throw error;
            });
            if (page === undefined) break; // it was just deleted
            if (page.missed > 0) session.note(`${count(page.missed)} refusals of ${apiId} are not kept`);
            news.push(...page.refusals.map((refusal) => ({ apiId, ...refusal })));
            cursors.set(apiId, page.cursor);
            isMore = after !== undefined && after !== page.cursor;
          }
        }
        return news
          .filter((each) => code === undefined || each.code === code.toUpperCase())
          .filter(({ externalId }) => identity === undefined || externalId === identity)
          .sort((a, b) => a.time - b.time);
      };
      try {
        const show = (refusals: readonly RefusalOfKey[]) => {
          for (const refusal of refusals)
            session.print(refusal, () =>
              lineOf(refusal, names.get(refusal.apiId) ?? (api ? undefined : refusal.apiId)),
            );
        };
        const earlier = (await look()).slice(-EARLIER_MAX);
        if (earlier.length > 0) session.note('Earlier:');
        show(earlier);
        session.note('From now on:');
        for (;;) {
          show(await look());
          await scheduler.wait(PERIOD_MS, { signal: stop });
        }
      } catch (error) {
        if (!stop.aborted) throw error;
      }
    });
}

/** The APIs whose keys the root key may read. */
async function apisIn(call: Client['call']): Promise<ReadonlyMap<string, string>> {
  const namesById = new Map<string, string>();
  for await (const { items } of pages<Api>(call, 'apis.listApis', {}, 'apis', APIS_MAX))
    for (const { id, keys, name = id } of items) if (keys !== undefined) namesById.set(id, name);
  if (namesById.size > 0) return namesById;
  throw new CliError('NO', 'there is no API whose keys the root key may list and read: name one with --api');
}

const CODE_WIDTH = 24;

/** A refusal in one line: columns of which all but the last are short, and the reason as a whole. */
function lineOf({ keyId, name, start, externalId, ...refusal }: RefusalOfKey, api?: string): string {
  const secret = start === undefined ? keyId : `${start}…`;
  const { code, requestId, detail, route } = refusal;
  const key = name ? `${name} (${secret})` : secret;
  const at = time(refusal.time);
  const cells = [code.padEnd(CODE_WIDTH), detail, externalId, key, api, route, requestId]
    .flatMap((part) => (part ? [printable(part)] : []))
    .map((part, i) => (i === 0 ? styleText('red', part) : part));
  return [at, ...cells].join(GAP);
}
