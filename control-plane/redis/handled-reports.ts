import { unavailable } from '#shared/contract/errors.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { reportMark } from '#shared/redis/redis-keys.ts';
import { Script } from '#shared/redis/script.ts';
import type { DurableWriter } from './durable-writer.ts';

const markScript = new Script(new URL('./lua/callers/mark-report.lua', import.meta.url));

/** A year: longer than GitHub signs with one key. A report carries no time, so only its mark makes it old. */
const REMEMBERED_MS = 31_536_000_000;

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

  /** @param bodyHash of the report's bytes: one report can have several valid signatures */
  async includes(bodyHash: string): Promise<boolean> {
    const mark = reportMark(bodyHash);
    return (await this.#nodes.run(mark, (redis) => redis.exists(mark))) === 1;
  }

  /** Marks a report. Rejects with SERVICE_UNAVAILABLE if the mark could get lost. */
  async add(bodyHash: string): Promise<void> {
    const { replicated } = await this.#writer.run(markScript, [reportMark(bodyHash)], [REMEMBERED_MS]);
    if (!replicated)
      throw unavailable('not all replicas confirmed that the report is handled; send it again');
  }
}
