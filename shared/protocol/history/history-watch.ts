import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { Type } from 'typebox';
import { Value } from 'typebox/value';
import { type Clock, pause } from '../../process/clock.ts';
import { ConfigError } from '../../process/load-config.ts';
import type { Logger } from '../../process/log.ts';
import { command, oneOf } from '../../redis/command.ts';
import type { RedisNodes } from '../../redis/redis.ts';
import { apiKeys, SHARED_LOG } from '../../redis/redis-keys.ts';
import { send } from '../../redis/script.ts';
import type { DurableWriter } from '../log/durable-writer.ts';
import { apiIds } from '../log/new-log.ts';
import type { DurabilityCheck } from '../writer/durability.ts';

const COMPARED = [...['created', 'generation', 'deleted', 'sequence#', 'hash', 'refusal', 'head#']] as const;
const watchHistory = command(
  new URL('./watch-history.lua', import.meta.url),
  ['head', 'log'],
  ['created', 'generation', 'sequence', 'hash', 'firm', 'replicas'],
  oneOf('state', { NONE: [], SAME: COMPARED, NEWER: COMPARED, OLDER: COMPARED, REFUSED: COMPARED }),
);
const acceptHistory = command(new URL('./accept-history.lua', import.meta.url), ['head'], [], (reply) =>
  String(reply),
);

/** Pause between two pages of APIs, and the size of a page; together they bound the load on Redis. */
const TICK_MS = 1000;
const APIS_PER_TICK = 200;
/** Minimum time between two writes of the file, for each of its marks, so that many cost little. */
const SAVE_MS_PER_MARK = 1;
/** Number of deleted APIs whose marks are kept. */
const ENDED_MAX = 10_000;

const Mark = Type.Object({
  /** When the API was created: a later API of this id has another history. */
  created: Type.String(),
  /** Number of older histories of it that were accepted. */
  generation: Type.String(),
  sequence: Type.Integer(),
  hash: Type.String(),
  /** The API was deleted. */
  ended: Type.Boolean(),
});
/** An entry of an API's log that a control plane saw. */
type Mark = Type.Static<typeof Mark>;

/** A history that verifiers do not follow until somebody accepts it. */
export interface RefusedHistory {
  readonly apiId: string;
  /** The latest change that Redis had when it was refused. */
  readonly sequence: number;
  /** The latest change that is known to have been durable. */
  readonly lostSequence: number;
}

interface HistoryWatchOptions {
  readonly nodes: Pick<RedisNodes, 'run'>;
  readonly writer: Pick<DurableWriter, 'send'>;
  readonly durability: Pick<DurabilityCheck, 'keeps'>;
  readonly replicas: number;
  /** Keeps the marks while no control plane runs; '' = none. */
  readonly file: string;
  readonly clock: Clock;
  /** Called by the control plane that refuses a history. */
  readonly onRefused: (refused: RefusedHistory) => Promise<void>;
  /** Called when an API has lost changes that were not known to be durable. */
  readonly onLost: () => void;
  readonly log: Logger;
}

/**
 * Notices that Redis is older than it was, as after a restore: remembers of each API the latest change that is on the disk
 * and on all replicas, and refuses a history that lacks it, because nobody knows what else it lacks. What was never durable
 * may be lost by a failover: that is only told.
 */
export class HistoryWatch {
  readonly #options: HistoryWatchOptions;
  readonly #firm: Map<string, Mark>;
  /** Later ones, which may not be durable. */
  readonly #loose = new Map<string, Mark>();
  readonly #refused = new Set<string>();
  readonly #stop = new AbortController();
  /** Monotonic milliseconds. */
  #savedMs = Number.NEGATIVE_INFINITY;
  #isSaved = true;

  /** Throws a ConfigError if the file cannot be understood. */
  constructor(options: HistoryWatchOptions) {
    this.#options = options;
    this.#firm = readMarks(options.file);
  }

  /** Number of APIs whose history is refused. */
  get refused(): number {
    return this.#refused.size;
  }

  /** Watches until `stop`; never rejects. */
  async run(): Promise<void> {
    let after = '';
    while (!this.#stop.signal.aborted) {
      try {
        // An older Redis may not list an API. All are compared in each round that begins.
        const marked = after === '' ? [SHARED_LOG, ...this.#firm.keys(), ...this.#loose.keys()] : [];
        const listed = await apiIds(this.#options.nodes, after, APIS_PER_TICK);
        await this.compare([...new Set([...marked, ...listed])]);
        after = listed.length < APIS_PER_TICK ? '' : (listed.at(-1) ?? '');
      } catch (error) {
        this.#options.log.debug({ err: error }, 'the watch of histories is waiting for Redis');
      }
      await pause(this.#options.clock, TICK_MS, this.#stop.signal);
    }
  }

  stop(): void {
    this.#stop.abort();
    if (!this.#isSaved) this.#save();
  }

  /** Accepts the refused history of an API, or all; returns those. Rejects with SERVICE_UNAVAILABLE. */
  async accept(apiId?: string): Promise<RefusedHistory[]> {
    const { nodes, writer } = this.#options;
    const accepted: RefusedHistory[] = [];
    for (const { apiId: refused } of await refusedHistories(nodes, apiId)) {
      const { reply } = await writer.send(acceptHistory({ head: apiKeys(refused).head }));
      if (reply !== 'NONE') accepted.push(refusedHistory(refused, reply));
      this.#refused.delete(refused);
    }
    return accepted;
  }

  /** Compares the histories of these APIs with their marks, once. */
  async compare(apiIds: readonly string[]): Promise<void> {
    const seen = new Map<string, Mark>();
    for (let at = 0; at < apiIds.length; at += APIS_PER_TICK) {
      const page = apiIds.slice(at, at + APIS_PER_TICK);
      await Promise.all(
        page.map(async (apiId) => {
          const mark = await this.#visit(apiId);
          if (mark) seen.set(apiId, mark);
        }),
      );
    }
    // What was read before the inspection began is durable if it finds so.
    const durable = await Promise.all(
      [...seen].map(async ([apiId, mark]) =>
        (await this.#options.durability.keeps(apiId)) ? [[apiId, mark]] : [],
      ),
    );
    const firm = durable.flat() as [string, Mark][];
    for (const [apiId, mark] of firm) {
      this.#loose.delete(apiId);
      this.#firm.delete(apiId); // the latest last
      this.#firm.set(apiId, mark);
    }
    if (firm.length > 0) this.#isSaved = false;
    const nowMs = this.#options.clock.monotonicMs();
    if (!this.#isSaved && nowMs - this.#savedMs >= this.#firm.size * SAVE_MS_PER_MARK) this.#save();
  }

  /** Compares an API's history with its mark. Returns its next mark, if that is another. */
  async #visit(apiId: string): Promise<Mark | undefined> {
    const { nodes, replicas, log } = this.#options;
    const firm = this.#firm.get(apiId);
    const loose = this.#loose.get(apiId);
    const mark = firm ?? loose;
    const { head, log: stream } = apiKeys(apiId);
    const { created = '', generation = '0', sequence = 0, hash = '' } = mark ?? {};
    const run = watchHistory({
      ...{ head, log: stream, created, generation, sequence, hash },
      ...{ firm: firm ? '1' : '0', replicas: replicas > 0 ? '1' : '0' },
    });
    const reply = await nodes.run(head, (redis) => send(redis, run));
    if (reply.state === 'NONE') {
      if (mark && !mark.ended) this.#tell(apiId, mark, 'an API is gone from Redis without being deleted');
      this.#end(apiId);
      return undefined;
    }
    if (reply.refusal) this.#refused.add(apiId);
    else this.#refused.delete(apiId);
    const { state, refusal } = reply;
    if (state === 'REFUSED') {
      const refused = refusedHistory(apiId, refusal);
      log.error(refused, 'Redis is older than it was: its history is refused');
      await this.#options.onRefused(refused);
    }
    if (refusal) return undefined;
    if (mark && state === 'OLDER') this.#tellLost(apiId, mark);
    else if (loose && state === 'SAME' && reply.head < loose.sequence) this.#tellLost(apiId, loose);
    else if (mark && !mark.ended && state === 'NEWER' && Number(reply.created) > Number(mark.created)) {
      this.#tell(apiId, mark, 'an API was made again without being deleted');
      this.#end(apiId);
    }
    const next = {
      ...{ created: reply.created, generation: reply.generation, sequence: reply.sequence, hash: reply.hash },
      ended: reply.deleted === '1',
    };
    // A change of which no replica count is known yet has no hash.
    if (next.hash === '' && next.sequence > 0) return undefined;
    // A failover may lose that more is on all replicas.
    const isLater = state === 'NEWER' || next.sequence > sequence || next.ended !== firm?.ended;
    if (firm && !isLater) return undefined;
    this.#loose.set(apiId, next);
    return next;
  }

  /** Notes that an API is gone; a Redis that has it again is older. */
  #end(apiId: string): void {
    this.#loose.delete(apiId);
    const firm = this.#firm.get(apiId);
    if (firm) this.#firm.set(apiId, { ...firm, ended: true });
  }

  #tellLost(apiId: string, mark: Mark): void {
    this.#tell(apiId, mark, 'Redis has lost changes that were not known to be durable');
    this.#loose.delete(apiId);
  }

  #tell(apiId: string, { sequence }: Mark, message: string): void {
    this.#options.onLost();
    this.#options.log.warn({ apiId, sequence }, message);
  }

  #save(): void {
    const { file, log } = this.#options;
    const ended = [...this.#firm].filter(([, mark]) => mark.ended);
    for (const [apiId] of ended.slice(0, Math.max(0, ended.length - ENDED_MAX))) this.#firm.delete(apiId);
    this.#savedMs = this.#options.clock.monotonicMs();
    this.#isSaved = true;
    if (file === '') return;
    try {
      writeFileSync(`${file}.new`, JSON.stringify(Object.fromEntries(this.#firm)), {
        mode: 0o600,
        flush: true,
      });
      renameSync(`${file}.new`, file);
    } catch (error) {
      log.error(
        { err: error },
        'HISTORY_FILE cannot be written: a restart forgets how far the histories were',
      );
    }
  }
}

/** Returns the histories that are refused: of one API, or all. */
export async function refusedHistories(
  nodes: Pick<RedisNodes, 'run'>,
  apiId?: string,
): Promise<RefusedHistory[]> {
  const refused: RefusedHistory[] = [];
  let page = apiId === undefined ? [SHARED_LOG, ...(await apiIds(nodes, '', APIS_PER_TICK))] : [apiId];
  while (page.length > 0) {
    const histories = await Promise.all(
      page.map(async (id) => {
        const { head } = apiKeys(id);
        const refusal = await nodes.run(head, (redis) => redis.hget(head, 'X'));
        return refusal ? [refusedHistory(id, refusal)] : [];
      }),
    );
    refused.push(...histories.flat());
    const last = page.at(-1) ?? '';
    page = apiId === undefined && last !== SHARED_LOG ? await apiIds(nodes, last, APIS_PER_TICK) : [];
  }
  return refused;
}

/** Returns the refused history that the script noted. */
function refusedHistory(apiId: string, refusal: string): RefusedHistory {
  const [, lost, , sequence] = refusal.split(' ');
  return { apiId, sequence: Number(sequence), lostSequence: Number(lost) };
}

function readMarks(file: string): Map<string, Mark> {
  if (file === '') return new Map();
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return new Map();
    throw new ConfigError([`HISTORY_FILE: ${file} cannot be read (${code})`]);
  }
  const marks = parsed(text);
  if (!Value.Check(Type.Record(Type.String(), Mark), marks))
    throw new ConfigError([
      `HISTORY_FILE: ${file} is damaged, or no file of this setting: restore it, or remove it (then a restore of Redis since is not noticed)`,
    ]);
  return new Map(Object.entries(marks));
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
