// Runs test files one by one as it is told, in a Vitest that stays: starting one takes longer than most tests.
import { createVitest } from 'vitest/node';

/** Task from the runner: one test file, after these files changed. */
export interface Order {
  readonly file: string;
  readonly changed: readonly string[];
}

/** Outcome of a test file. */
export interface Outcome {
  /** The first test that failed, if any. */
  readonly failed?: string;
  /** The signal by which somebody else ended what ran it; then nothing is known of its tests. */
  readonly killed?: string;
}

const root = process.cwd();
const vitest = await createVitest('test', {
  root,
  watch: false,
  bail: 1,
  fileParallelism: false,
  reporters: [{}],
  cache: false,
});
await vitest.standalone();

process.on('message', async ({ file, changed }: Order) => {
  for (const path of changed) vitest.invalidateFile(path);
  vitest.state.clearErrors();
  const specifications = await vitest.globTestSpecifications([file]);
  const { testModules, unhandledErrors } = await vitest.runTestSpecifications(specifications);
  // Those of earlier runs are among them.
  const mine = testModules.filter(({ moduleId }) => specifications.some((one) => one.moduleId === moduleId));
  const failures = mine.flatMap((module) => {
    const tests = [...module.children.allTests('failed')].map(({ fullName }) => fullName);
    return module.ok() ? [] : [tests[0] ?? 'the file could not be run'];
  });
  const failed = failures[0] ?? (unhandledErrors.length > 0 ? 'an error that nobody handled' : undefined);
  const missing = specifications.length === 0 ? `there is no ${file}` : undefined;
  const killed = unhandledErrors.map(signalOf).find((signal) => signal !== undefined);
  const outcome: Outcome = {
    ...(failed || missing ? { failed: failed ?? missing ?? '' } : {}),
    ...(killed ? { killed } : {}),
  };
  process.send?.(outcome);
});
/** The signal that ended a process of Vitest's which ran the file, where an error says so. */
function signalOf(error: unknown): string | undefined {
  const { message = '', cause } = (error ?? {}) as { message?: string; cause?: unknown };
  const [, signal] = /exited unexpectedly .*\bsignal (SIG\w+)/.exec(message) ?? [];
  return signal ?? (cause === undefined ? undefined : signalOf(cause));
}

process.on('disconnect', () => process.exit(0));
process.send?.('ready');
