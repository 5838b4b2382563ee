import { ApiError } from '#shared/contract/errors.ts';

/**
 * NOT_FOUND for a caller who does not see every API: either nothing is there, or a permission is missing. Only the audit
 * log says which. Both leave an event; otherwise the time of the answer would tell them apart.
 */
export class MaskedNotFound extends ApiError {
  /** Outcome in the audit log. */
  readonly outcome: 'INSUFFICIENT_PERMISSIONS' | 'NOT_FOUND';

  constructor(message: string, outcome: MaskedNotFound['outcome']) {
    super('NOT_FOUND', message);
    this.outcome = outcome;
  }
}
