import { isDeepStrictEqual } from 'node:util';
import { vi } from 'vitest';

/** What a process is, as far as tests may change it for those that come after them in the same worker. */
export interface Found {
  readonly env: NodeJS.ProcessEnv;
  readonly 'working directory': string;
  /** Numbers by event. Listeners for the end are left out: whoever logs has one. */
  readonly 'listeners of the process': Readonly<Record<string, number>>;
  readonly 'fake timers': boolean;
}

export const find = (): Found => ({
  env: { ...process.env },
  'working directory': process.cwd(),
  'listeners of the process': Object.fromEntries(
    process
      .eventNames()
      .filter((name) => name !== 'exit')
      .map((name) => [String(name), process.listenerCount(name)]),
  ),
  'fake timers': vi.isFakeTimers(),
});

/** Names what is no longer as it was found. */
export function changedSince(found: Found): string[] {
  const now = find();
  const names = Object.keys(found) as (keyof Found)[];
  return names.filter((name) => !isDeepStrictEqual(now[name], found[name]));
}

/** Number of processes that this one started and that run. */
export const children = (): number =>
  process.getActiveResourcesInfo().filter((kind) => kind === 'ProcessWrap').length;
