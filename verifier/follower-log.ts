import type { Logger } from '#shared/process/log.ts';
import type { FollowerEvents } from './core/follower-events.ts';

/**
 * Creates the log of a follower's events. Of consecutive failures only the first is a warning, so that an
 * outage is one line per API.
 */
export function followerLog(apiId: string, log: Logger): FollowerEvents {
  let failing = false;
  return {
    live(position, leaseMs) {
      failing = false;
      log.info({ apiId, position, leaseMs }, 'following');
    },
    dropped(reason, position) {
      log.warn({ apiId, reason, position }, 'out of sync: forgot everything, registering anew');
    },
    disconnected(reason, position) {
      const say = failing ? log.debug.bind(log) : log.warn.bind(log);
      say(
        { apiId, position, err: reason },
        'no session with Redis; answering from memory while the lease holds',
      );
      failing = true;
    },
    resumed(position) {
      failing = false;
      log.info({ apiId, position }, 'in touch with Redis again');
    },
    gap(position, sequence) {
      log.debug({ apiId, position, received: sequence }, 'a message was missed; synchronising');
    },
    applied({ sequence, keyId }, source) {
      log.debug({ apiId, sequence, keyId, source }, 'change applied');
    },
  };
}
