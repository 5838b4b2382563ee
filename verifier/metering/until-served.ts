import type { Waiter } from '#shared/metering/demand.ts';
import type { Deadlines } from '#shared/process/deadlines.ts';

/**
 * Resolves with the outcome of `attempt`, or rejects with its error, or at the deadline. An attempt without an
 * outcome asks pools with the waiter, which then attempts anew.
 */
export function untilServed<T extends object>(
  deadlines: Deadlines<(error: unknown) => void>,
  attempt: (waiter: Waiter) => T | Promise<T> | undefined,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const deadline = deadlines.begin(reject);
    let isOver = false;
    const end = () => {
      isOver = true;
      deadlines.end(deadline);
    };
    const waiter: Waiter = {
      get over() {
        return isOver || deadline.hasPassed;
      },
      again() {
        if (waiter.over) return;
        try {
          const outcome = attempt(waiter);
          if (outcome === undefined) return;
          end();
          resolve(outcome);
        } catch (error) {
          waiter.fail(error);
        }
      },
      fail(error) {
        if (waiter.over) return;
        end();
        reject(error);
      },
    };
    waiter.again();
  });
}
