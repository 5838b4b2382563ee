import closeWithGrace from 'close-with-grace';
import type { ConfigOf } from './load-config.ts';
import type { createLogger } from './log.ts';
import type { processLimits, processSettings } from './process-settings.ts';

/**
 * Stops the process DRAIN_MS after a signal, or immediately after an error that nobody handled.
 * @param skip signals that do not stop it
 */
export function stopWithGrace(
  process: { stop(drainMs: number): Promise<void> },
  { DRAIN_MS, SHUTDOWN_GRACE_MS }: ConfigOf<ReturnType<typeof processSettings>> & typeof processLimits,
  log: ReturnType<typeof createLogger>,
  skip: NonNullable<closeWithGrace.Options['skip']> = [],
): void {
  closeWithGrace({ delay: DRAIN_MS + SHUTDOWN_GRACE_MS, logger: log, skip }, async ({ signal, err }) => {
    if (err) log.fatal({ err }, 'stopping after an unhandled error');
    else log.info({ signal }, 'stopping');
    await process.stop(err ? 0 : DRAIN_MS);
  });
}
