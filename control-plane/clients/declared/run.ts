import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '#shared/process/clock.ts';
import { CliError } from '../cli/exit.ts';
import { type Change, expectRoles, planOf } from './compare.ts';
import type { Declared } from './files.ts';
import type { Kind } from './kinds.ts';
import { type Call, type Present, readPresent } from './present.ts';
import { type Completion, completion, lastOf, type Written } from './wait.ts';
import { type Failure, write } from './write.ts';

/** The state that files wish. */
export interface Wish {
  readonly declared: readonly Declared[];
  /** The set that declares it, which is its `managedBy`. */
  readonly set: string;
  readonly prune: boolean;
  readonly force: boolean;
}

/** Differences from a wish, and what they were read from. */
export interface Comparison {
  readonly changes: readonly Change[];
  readonly present: ReadonlyMap<string, Present>;
  /** Kinds that no file mentions and the caller may not read, so that nothing of them is deleted. */
  readonly unread: readonly Kind[];
}

export interface Outcome {
  readonly done: readonly Change[];
  readonly failed: readonly Failure[];
  readonly remainder: number;
  /** The changes whose part that stops something was made. */
  readonly stopped: ReadonlySet<Change>;
  readonly propagation: Completion;
}

/** A change that somebody was faster than is planned anew so often. */
const ROUNDS = 3;

/** Returns the changes that bring Keyfence to a wish. */
export async function compare(call: Call, wish: Wish): Promise<Comparison> {
  const { declared, set, prune } = wish;
  const { present, unread } = await readPresent(call, declared, set, prune);
  const changes = planOf(declared, present, wish);
  await expectRoles(call, declared, changes);
  return { changes, present, unread };
}

/**
 * Brings Keyfence to a wish, and waits until no verifier answers from an earlier state, also one that an earlier run or somebody else
 * left behind.
 * @param again is told the changes that are planned anew because somebody else was faster; undefined = they are not
 */
export async function bring(
  call: Call,
  wish: Wish,
  first: Pick<Comparison, 'changes' | 'present'>,
  clock: Clock,
  again: ((changes: readonly Change[]) => Promise<void>) | undefined,
): Promise<Outcome> {
  const done: Change[] = [];
  const written: Written[] = [];
  let now = first;
  let failed: readonly Failure[] = [];
  let remainder = 0;
  const stopped = new Set<Change>();
  for (let round = 1; ; round++) {
    const pass = await write(call, now.changes, wish.set);
    done.push(...pass.done);
    written.push(...pass.written);
    for (const change of pass.stopped) stopped.add(change);
    ({ failed, remainder } = pass);
    const conflicts = failed.filter(({ error }) => error.code === 'CONFLICT');
    if (conflicts.length === 0 || round === ROUNDS || !again) break;
    try {
      now = await compare(call, wish);
      const isStill = ({ change }: Failure) => now.changes.some((each) => isDeepStrictEqual(each, change));
      if (conflicts.every(isStill)) break;
      await again(now.changes);
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      failed = failed.map((each) => (conflicts.includes(each) ? { ...each, error } : each));
      break;
    }
  }
  const ids = new Set(wish.declared.map(({ id }) => id));
  const declared = [...now.present.values()].filter(({ id }) => ids.has(id));
  written.push(...lastOf(declared), ...(wish.prune ? headsOf(now.present.values(), wish) : []));
  const propagation = await completion(call, written, clock);
  return { done, failed, remainder, stopped, propagation };
}

/** The logs in which an earlier run may have deleted what is no more: of these, what is last counts, whoever wrote it. */
function headsOf(present: Iterable<Present>, { declared }: Wish): Written[] {
  const things = [...present, ...declared];
  const apis = things.flatMap(({ kind, fields }) =>
    kind === 'Key' || kind === 'Api' ? [String(fields['apiId'])] : [],
  );
  return [...new Set(apis)].map((apiId) => ({ log: apiId, changed: { apiId } }));
}
