import { ApiError } from '#shared/contract/errors.ts';

/**
 * NOT_FOUND for a caller who may not see every API: either there is no such thing, or a permission is
 * missing. Only the audit log says which. Both cases record an event; otherwise the response time would tell
 * them apart.
 */
export class MaskedNotFound extends ApiError {
  /** Outcome in the audit log. */
  readonly outcome: 'INSUFFICIENT_PERMISSIONS' | 'NOT_FOUND';

  constructor(message: string, outcome: MaskedNotFound['outcome']) {
    super('NOT_FOUND', message);
    this.outcome = outcome;
  }
}
