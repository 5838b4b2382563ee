import { Value } from 'typebox/value';
import { verifierIds, verifierStatus } from '#shared/layout.ts';
import type { RedisNodes } from '#shared/redis.ts';
import type { VerifierStatus } from '#shared/verifier-status.ts';
import { Verifier } from './routes/answers.ts';

/** What verifiers reported of themselves. They write it, so it is believed only as far as it has the form. */
export class FleetView {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /**
   * The verifiers that reported lately, in order of their start. A page may be short: ids whose report expired
   * count towards `limit`.
   * @param after the id to go on after; '' = from the start
   * @returns `next`: the id to go on after; undefined on the last page
   */
  async list(after: string, limit: number): Promise<{ verifiers: VerifierStatus[]; next?: string }> {
    const redis = await this.#nodes.connection(verifierIds);
    const from = after === '' ? '-' : `(${after}`;
    const range = redis.zrangebylex(verifierIds, from, '+', 'LIMIT', 0, limit + 1);
    const ids = await this.#nodes.within(redis, range);
    const page = ids.slice(0, limit);
    if (page.length === 0) return { verifiers: [] };
    const reports = await this.#nodes.within(redis, redis.mget(page.map(verifierStatus)));
    const verifiers = reports.map(parse).filter((status) => status !== undefined);
    const next = ids.length > limit ? page.at(-1) : undefined;
    return { verifiers, ...(next === undefined ? {} : { next }) };
  }
}

function parse(report: string | null): VerifierStatus | undefined {
  try {
    const status: unknown = JSON.parse(report ?? '');
    return Value.Check(Verifier, status) ? status : undefined;
  } catch {
    return undefined; // expired, or damaged
  }
}
