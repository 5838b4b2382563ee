import { unavailable } from '#shared/contract/errors.ts';
import type { Write } from './change-log-port.ts';

/** Limits on the incomplete changes of one API. */
export interface PendingLimits {
  readonly changesMax: number;
  /** Limit on disables and deletes, which are counted apart so that neither kind can block the other. */
  readonly refusalsMax: number;
}

type Kind = 'changes' | 'refusals';

/** Counts incomplete changes by API, so that one API's changes cannot block another's. */
export class PendingChanges {
  readonly #limits: PendingLimits;
  readonly #counts = new Map<string, number>();

  constructor(limits: PendingLimits) {
    this.#limits = limits;
  }

  /**
   * Counts changes from now on. Throws SERVICE_UNAVAILABLE if their API has too many.
   * @param changes number of changes that begin together; if above the limit, they count as the limit, so
   * that they run alone
   * @returns a function to call once, when the changes are complete or were not made
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

/** Tells whether losing the write would let a key through that the caller wants refused. */
export function isRefusal({
  operation,
  fields,
  successor,
}: Pick<Write, 'operation' | 'fields' | 'successor'>): boolean {
  if (operation === 'update' || operation === 'create') return fields.e === '0' || successor !== undefined;
  return operation === 'delete' || operation === 'api-deleted';
}
