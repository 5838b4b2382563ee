import type { DurableWriter } from '#shared/protocol/log/durable-writer.ts';
import { command } from '#shared/redis/command.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { reportMark } from '#shared/redis/redis-keys.ts';
import { unavailable } from '#shared/rules/errors.ts';

const markReport = command(new URL('./mark-report.lua', import.meta.url), ['mark'], ['ms'], String);

/** A year: longer than GitHub signs with one key. A report carries no time, so only its mark makes it old. */
const REMEMBERED_MS = 31_536_000_000;
/** A report that was claimed for so long is handled by nobody any more: longer than a report waits for its changes. */
const CLAIMED_MS_MAX = 60_000;

/**
 * The reports of leaked secrets that were handled, so that a repeated report does not disable a key that an
 * admin has enabled since. Only reports about secrets of ours are marked.
 */
export class HandledReports {
  readonly #nodes: RedisNodes;
  readonly #writer: DurableWriter;

  constructor(nodes: RedisNodes, writer: DurableWriter) {
    this.#nodes = nodes;
    this.#writer = writer;
  }

  /**
   * Claims a report before it is handled; resolves with false if it was handled. Rejects with SERVICE_UNAVAILABLE while
   * another call handles it.
   * @param bodyHash of the report's bytes: one report can have several valid signatures
   */
  async claim(bodyHash: string): Promise<boolean> {
    const mark = reportMark(bodyHash);
    const present = await this.#nodes.run(mark, (redis) =>
      redis.set(mark, CLAIMED, 'PX', CLAIMED_MS_MAX, 'NX', 'GET'),
    );
    if (present === CLAIMED) throw unavailable('this report is being handled; send it again');
    return present === null;
  }

  /** Gives up the claim of a report that could not be handled. */
  async release(bodyHash: string): Promise<void> {
    const mark = reportMark(bodyHash);
    await this.#nodes.run(mark, (redis) => redis.del(mark));
  }

  /** Marks a report. Rejects with SERVICE_UNAVAILABLE if the mark could get lost. */
  async add(bodyHash: string): Promise<void> {
    const { replicated } = await this.#writer.send(
      markReport({ mark: reportMark(bodyHash), ms: REMEMBERED_MS }),
    );
    if (!replicated)
      throw unavailable('not all replicas confirmed that the report is handled; send it again');
  }
}

const CLAIMED = 'claimed';
