import closeWithGrace from 'close-with-grace';
import type { ConfigOf } from './load-config.ts';
import type { createLogger } from './log.ts';
import type { processLimits, processSettings } from './process-settings.ts';

/**
 * Stops the process DRAIN_MS after a signal, and up to STOP_WAIT_MS later; or immediately after an error that nobody handled.
 * @param skip signals that do not stop it
 */
export function stopWithGrace(
  process: { stop(drainMs: number, holdsMs: number): Promise<void> },
  {
    DRAIN_MS,
    STOP_WAIT_MS = 0,
    SHUTDOWN_GRACE_MS,
  }: ConfigOf<ReturnType<typeof processSettings>> & typeof processLimits & { readonly STOP_WAIT_MS?: number },
  log: ReturnType<typeof createLogger>,
  skip: NonNullable<closeWithGrace.Options['skip']> = [],
): void {
  closeWithGrace(
    { delay: DRAIN_MS + STOP_WAIT_MS + SHUTDOWN_GRACE_MS, logger: log, skip },
    async ({ signal, err }) => {
      if (err) log.fatal({ err }, 'stopping after an unhandled error');
      else log.info({ signal }, 'stopping');
      await process.stop(err ? 0 : DRAIN_MS, err ? 0 : STOP_WAIT_MS);
    },
  );
}
