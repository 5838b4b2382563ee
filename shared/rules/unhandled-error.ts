import { ApiError } from './errors.ts';

/**
 * Converts a thrown value to the error for the client. Returns an ApiError unchanged. Anything else is a bug
 * in this process: it is logged here, under the only message that the runbook names, and the client gets 500.
 */
export function toApiError(
  err: unknown,
  log: { error(fields: object, message: string): void },
  request: { readonly requestId?: string; readonly traceId?: string | undefined } = {},
): ApiError {
  if (err instanceof ApiError) return err;
  log.error({ ...request, err }, UNHANDLED);
  return new ApiError('INTERNAL_SERVER_ERROR', 'something went wrong on our side', { cause: err });
}

/** Log message of an unexpected error. */
export const UNHANDLED = 'unhandled error';
