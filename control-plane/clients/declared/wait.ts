import { scheduler } from 'node:timers/promises';
import type { Clock } from '#shared/process/clock.ts';
import { TOKEN_LEEWAY } from '#shared/protocol/timing.ts';
import { CliError } from '../cli/exit.ts';
import { type Changed, receiptOf } from '../client/receipt.ts';
import { rulesOf } from './kinds.ts';
import { type Call, inParallel, type Present } from './present.ts';

/** The wait for all changes together. */
const COMPLETE_MS_MAX = 60_000;
const ASK_FIRST_MS = 20;
const ASK_MAX_MS = 500;

/** A change of which verifiers must learn. */
export interface Written {
  /** The API in whose log it is; '' = the log that all APIs share. */
  readonly log: string;
  /** Absent: the latest of the log, whoever wrote it. */
  readonly sequence?: number;
  readonly changed: Changed;
  /** The thing that verifiers may still accept until this is complete, as people read it. */
  readonly stops?: string;
}

export interface Completion {
  readonly state: 'complete' | 'pending';
  readonly tookMs: number;
  readonly laggards: readonly string[];
  /** The things that verifiers may still accept. */
  readonly accepted: readonly string[];
  /** The reason why the progress is unknown. */
  readonly fault?: string;
}

/** Returns the last change of each log among these things: whoever made it, an answer may still be from before. */
export function lastOf(things: Iterable<Present>): Written[] {
  return [...things].flatMap(({ kind, fields, ref, version }): Written[] => {
    if (!rulesOf(kind).isInLog || !(version > 0)) return [];
    const log = kind === 'Key' ? String(fields['apiId']) : '';
    return [{ log, sequence: version, changed: ref as Changed }];
  });
}

/**
 * Waits until all changes are complete, at most COMPLETE_MS_MAX, and longer for tokens: of each log, the last has all others before
 * it.
 */
export async function completion(call: Call, written: readonly Written[], clock: Clock): Promise<Completion> {
  const startedAtMs = clock.monotonicMs();
  const last = new Map<string, Written>();
  const heads = new Map<string, Written>();
  for (const each of written) {
    if (each.sequence === undefined) heads.set(each.log, each);
    else if (each.sequence > (last.get(each.log)?.sequence ?? -1)) last.set(each.log, each);
  }
  const laggards = new Set<string>();
  const mostMs = (hasOnlyTokens: boolean) => COMPLETE_MS_MAX + (hasOnlyTokens ? TOKEN_LEEWAY.maxMs : 0);
  let waiting = [...last.values(), ...heads.values()];
  for (let pauseMs = ASK_FIRST_MS; ; pauseMs = Math.min(2 * pauseMs, ASK_MAX_MS)) {
    laggards.clear();
    let hasOnlyTokens = true;
    let fault: CliError | undefined;
    const next = await inParallel(waiting, async (each): Promise<Written | undefined> => {
      const receipt = await receiptOf(call, each.changed, each.sequence).catch((error: unknown) => {
        if (!(error instanceof CliError)) throw error;
        fault = error;
        return { state: 'pending', by: undefined, laggards: [] } as const;
      });
      if (receipt?.state !== 'pending') return undefined;
      for (const name of receipt.laggards ?? []) laggards.add(name);
      hasOnlyTokens &&= receipt.by !== undefined;
      return each;
    });
    waiting = next.filter((each) => each !== undefined);
    const tookMs = clock.monotonicMs() - startedAtMs;
    if (waiting.length === 0) return { state: 'complete', tookMs, laggards: [], accepted: [] };
    const isOver = tookMs > mostMs(hasOnlyTokens) || (fault !== undefined && fault.exit !== 'UNAVAILABLE');
    if (isOver) {
      const logs = new Set(waiting.map(({ log }) => log));
      const accepted = written.flatMap(({ log, stops }) => (stops && logs.has(log) ? [stops] : []));
      return {
        ...{ state: 'pending', tookMs, laggards: [...laggards], accepted: [...new Set(accepted)] },
        ...(fault ? { fault: fault.message } : {}),
      };
    }
    await scheduler.wait(pauseMs);
  }
}
