import { ApiError } from '#shared/rules/errors.ts';

/**
 * Thrown for a question that was given up: there were too many look-ups (`shed`), or it took too long (`slow`) while Redis
 * answered others or nobody (`silent`), or too many holds are open (`held`). Clients get 503 with `Retry-After`.
 */
export class LookupGivenUp extends ApiError {
  readonly reason: 'shed' | 'slow' | 'silent' | 'held';

  constructor(reason: LookupGivenUp['reason'], message: string) {
    super('SERVICE_UNAVAILABLE', message);
    this.reason = reason;
  }
}
