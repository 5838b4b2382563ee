import { ApiError } from './errors.ts';

/**
 * Turns whatever was thrown into the error that the client is told. An ApiError stays as it is. Anything else is a fault of
 * this process: it is logged here, under the one message that the runbook names, and the client hears 500.
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

/** Log message of an error that nobody foresaw. */
export const UNHANDLED = 'unhandled error';
