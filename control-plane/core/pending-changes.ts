import { unavailable } from '#shared/contract/errors.ts';
import type { Write } from './change-log-port.ts';

/** Most changes of one API that are not complete. */
export interface PendingLimits {
  readonly changesMax: number;
  /** Of disables and deletes, which do not count among the others: who fills up one must not stop the other. */
  readonly refusalsMax: number;
}

type Kind = 'changes' | 'refusals';

/** Changes that are under way, by API, so that one API's cannot stand in the way of another's. */
export class PendingChanges {
  readonly #limits: PendingLimits;
  readonly #counts = new Map<string, number>();

  constructor(limits: PendingLimits) {
    this.#limits = limits;
  }

  /**
   * Counts a change from now on. Throws SERVICE_UNAVAILABLE where its API has too many.
   * @param changes of its kind at once; more than the API may have count as those, so that they are let through alone
   * @returns to be called once, when the change is complete or was not made
   */
  begin(write: Pick<Write, 'apiId' | 'operation' | 'fields' | 'successor'>, changes = 1): () => void {
    const kind: Kind = isRefusal(write) ? 'refusals' : 'changes';
    const { changesMax, refusalsMax } = this.#limits;
    const id = `${kind} ${write.apiId}`;
    const max = kind === 'refusals' ? refusalsMax : changesMax;
    const [count, weight] = [this.#counts.get(id) ?? 0, Math.min(changes, max)];
    if (count + weight > max) {
      throw unavailable(
        kind === 'refusals'
          ? `${refusalsMax} disables and deletes of api ${write.apiId} are not complete yet; nothing was changed`
          : `${changesMax} changes of api ${write.apiId} are not complete yet; nothing was changed`,
      );
    }
    this.#counts.set(id, count + weight);
    return () => {
      const remainder = (this.#counts.get(id) ?? 0) - weight;
      if (remainder > 0) this.#counts.set(id, remainder);
      else this.#counts.delete(id);
    };
  }
}

/** Tells whether a lost write would let a key through that the caller wanted refused. */
export function isRefusal({
  operation,
  fields,
  successor,
}: Pick<Write, 'operation' | 'fields' | 'successor'>): boolean {
  if (operation === 'update' || operation === 'create') return fields.e === '0' || successor !== undefined;
  return operation === 'delete' || operation === 'api-deleted';
}
