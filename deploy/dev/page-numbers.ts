// The numbers of pages that the code decides. A page writes `<!-- n: NAME -->` before one; `npm run docs` fills it in.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { EARLIER_MAX } from '../../control-plane/clients/cli/commands/tail.ts';
import { limits as controlPlane, settings as controlPlaneSettings } from '../../control-plane/config.ts';
import { REFRESH_MS } from '../../control-plane/core/callers/person-sessions.ts';
import { ANCESTORS_MAX, DESCENDANTS_MAX, ROOT_KEYS_MAX } from '../../control-plane/core/callers/root-keys.ts';
import { SESSION_IDLE_MS, SESSION_MS_MAX, SESSIONS_MAX } from '../../control-plane/core/callers/sessions.ts';
import { MANY_KEYS_MAX } from '../../control-plane/core/keys/operations/many-keys.ts';
import { CALLS_ONCE_MAX } from '../../control-plane/core/serve/once.ts';
import { deposedMsOf } from '../../control-plane/parts.ts';
import { BODY_BYTES_MAX, PER_ADDRESS, SECRETS_MAX } from '../../control-plane/subjects/leaks/leaks.ts';
import { PERMISSIONS_MAX } from '../../control-plane/subjects/roles/permissions.ts';
import { ROLES_MAX } from '../../control-plane/subjects/roles/roles.ts';
import { HANDOVERS_MAX } from '../../control-plane/subjects/sign-in/handovers.ts';
import { SIGN_IN_MS_MAX } from '../../control-plane/subjects/sign-in/pending-sign-ins.ts';
import { DELIVERY_MS_MAX, FAILURES_TO_PAUSE } from '../../control-plane/subjects/webhooks/endpoint-sender.ts';
import { ATTEMPT_MS_MAX } from '../../control-plane/subjects/webhooks/event-poster.ts';
import { DEAD_KEPT } from '../../control-plane/subjects/webhooks/outbox.ts';
import { GROUPS_MAX, QUERY_LENGTH_MAX as SQL_LENGTH_MAX } from '../../control-plane/unkey-v2/usage-query.ts';
import { RECALL_MS } from '../../shared/metering/exchange.ts';
import { GRANTED_MS } from '../../shared/metering/grant-window.ts';
import { REFUSED_PLACE_MS, REFUSED_WINDOW_MS } from '../../shared/metering/outlook.ts';
import { IDLE_MS } from '../../shared/metering/pool.ts';
import { WAITING_LENGTH_MAX } from '../../shared/process/log.ts';
import { HOLD_MS } from '../../shared/protocol/follower/pointers.ts';
import { BATCH_LIMITS, LOG_ENTRIES, SHARING_MAX } from '../../shared/protocol/log/change-log.ts';
import { CREATIONS_KEPT } from '../../shared/protocol/log/new-key-record.ts';
import { OVERRIDES_MAX } from '../../shared/protocol/records/namespace-record.ts';
import { REFUSALS_KEPT, REFUSALS_KEPT_S } from '../../shared/protocol/records/refusal-records.ts';
import { fenceMs } from '../../shared/protocol/timing.ts';
import { IDLE_MS as SWEEP_IDLE_MS, TICK_MS } from '../../shared/protocol/writer/sweep.ts';
import { WAITING_MAX } from '../../shared/reports/refusals-report.ts';
import { AGAIN_MS } from '../../shared/reports/usage-report.ts';
import { RANGES_MAX } from '../../shared/rules/ip-ranges.ts';
import { ORIGINS_MAX } from '../../shared/rules/origins.ts';
import { DEPTH_MAX, LEAVES_MAX, QUERY_LENGTH_MAX } from '../../shared/rules/permission-query.ts';
import { SLUGS_MAX } from '../../shared/rules/slugs.ts';
import { STANDING_MS } from '../../verifier/core/expiry-clock.ts';
import { HELD_LIMITS_MAX, TAG_LENGTH_MAX, TAGS_MAX } from '../../verifier/core/question.ts';
import { TEXT_MAX } from '../../verifier/doors/grpc/check.ts';
import { RETRY_AFTER_S } from '../../verifier/doors/http/gateway-answer.ts';
import { CHECKS_MAX } from '../../verifier/doors/http/rate-limit.ts';
import { httpLimits } from '../../verifier/doors/http/server.ts';
import { HEAD_BYTES_MAX } from '../../verifier/doors/lane/head.ts';
import { IN_A_ROW_MAX } from '../../verifier/doors/lane/lane.ts';
import { ANSWER_KEPT_MS, ANSWERS_MAX, HOLDS_MAX, HOLDS_PER_KEY_MAX } from '../../verifier/metering/holds.ts';
import { IDLE_MS_MAX, TOLD_MARGIN_MS } from '../../verifier/proxy/connections.ts';
import { KEYS_WARNED_MAX } from '../../verifier/proxy/proxy.ts';
import { INTERIM_HEADS_MAX } from '../../verifier/proxy/upstream.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const S = 1000;
const MIN = 60 * S;
const HOUR = 60 * MIN;
const KIB = 1024;

const LEASE_MS = Number(controlPlaneSettings.LEASE_MS.default);
const LAG_S = Number(controlPlaneSettings.REDIS_MIN_REPLICAS_MAX_LAG_S.default);
/** Longest wait for a silent verifier by default: with one Redis, and with replicas. */
const FENCE_MS = fenceMs(LEASE_MS, 0);
const FENCE_WITH_REPLICAS_MS = fenceMs(
  LEASE_MS,
  deposedMsOf({ REDIS_REPLICAS: 1, REDIS_MIN_REPLICAS_MAX_LAG_S: LAG_S }),
);

const NUMBERS: Readonly<Record<string, number>> = {
  LEASE_S: LEASE_MS / S,
  FENCE_S: Math.round(FENCE_MS / S),
  FENCE_WITH_REPLICAS_S: Math.round(FENCE_WITH_REPLICAS_MS / S),
  PLACES_FREE_S: Math.ceil((SWEEP_IDLE_MS + TICK_MS + FENCE_MS) / S),
  PLACES_FREE_WITH_REPLICAS_S: Math.ceil((SWEEP_IDLE_MS + TICK_MS + FENCE_WITH_REPLICAS_MS) / S),
  SWEEP_IDLE_S: SWEEP_IDLE_MS / S,
  LOG_ENTRIES,
  CREATIONS_KEPT,
  MANY_KEYS_MAX,
  CALLS_ONCE_MAX,
  OPERATIONS_KEPT: inLua('shared/protocol/log/operations.lua', 'KEPT'),
  OPERATIONS_KEPT_H: inLua('shared/protocol/log/operations.lua', 'KEPT_MS') / HOUR,
  ROTATION_AGAIN_H: inLua('shared/protocol/log/reroll-key.lua', 'AGAIN_MS') / HOUR,
  SHARING_MAX,
  STOPS_PENDING_MAX: controlPlane.STOPS_PENDING_MAX,
  BATCH_PART_MAX: BATCH_LIMITS.partMax,
  ROLES_MAX,
  PERMISSIONS_MAX,
  ROOT_KEYS_MAX,
  DESCENDANTS_MAX,
  CHAIN_MAX: ANCESTORS_MAX + 1,
  ROOT_KEY_CALLS_AT_ONCE: controlPlane.ROOT_KEY_CALLS_AT_ONCE,
  ROOT_KEY_CALLS_WAITING_MAX: controlPlane.ROOT_KEY_CALLS_WAITING_MAX,
  EVENT_LOOP_DELAY_MS_MAX: controlPlane.EVENT_LOOP_DELAY_MS_MAX,
  SESSIONS_MAX,
  SESSION_IDLE_MIN: SESSION_IDLE_MS / MIN,
  SESSION_H_MAX: SESSION_MS_MAX / HOUR,
  HANDOVERS_MAX,
  REFRESH_MIN: REFRESH_MS / MIN,
  SIGN_IN_MIN_MAX: SIGN_IN_MS_MAX / MIN,
  AUDIT_WAITING_MAX: controlPlane.AUDIT_WAITING_MAX,
  AUDIT_REFUSED_MAX: controlPlane.AUDIT_REFUSED_MAX,
  ATTEMPT_S_MAX: ATTEMPT_MS_MAX / S,
  FAILURES_TO_PAUSE,
  DELIVERY_DAYS_MAX: DELIVERY_MS_MAX / (24 * HOUR),
  DEAD_KEPT,
  LEAKED_SECRETS_MAX: SECRETS_MAX,
  LEAK_REPORT_KIB_MAX: BODY_BYTES_MAX / KIB,
  LEAK_REPORTS_AT_ONCE: PER_ADDRESS.atOnce,
  SQL_LENGTH_MAX,
  SQL_GROUPS_MAX: GROUPS_MAX,
  EARLIER_REFUSALS: EARLIER_MAX,
  CLOCK_STANDING_H: STANDING_MS / HOUR,
  LOG_WAITING_MIB: WAITING_LENGTH_MAX / KIB ** 2,
  POOL_IDLE_S: IDLE_MS / S,
  RECALL_MS,
  GRANTED_S: GRANTED_MS / S,
  REFUSED_WINDOW_S: REFUSED_WINDOW_MS / S,
  REFUSED_PLACE_MS,
  HOLDS_MAX,
  HOLDS_PER_KEY_MAX,
  HELD_LIMITS_MAX,
  RELEASES_KEPT: ANSWERS_MAX,
  KEYS_WARNED: KEYS_WARNED_MAX,
  IDLE_S_MAX: IDLE_MS_MAX / S,
  TOLD_MARGIN_S: TOLD_MARGIN_MS / S,
  RELEASE_KEPT_S: ANSWER_KEPT_MS / S,
  BROUGHT_MAX: inLua('shared/metering/windows.lua', 'BROUGHT_MAX'),
  CHECKS_MAX,
  OVERRIDES_MAX,
  QUERY_LENGTH_MAX,
  LEAVES_MAX,
  DEPTH_MAX,
  SLUGS_MAX,
  RANGES_MAX,
  ORIGINS_MAX,
  REQUEST_TIMEOUT_S: httpLimits.REQUEST_TIMEOUT_MS / S,
  HEADERS_TIMEOUT_S: httpLimits.HEADERS_TIMEOUT_MS / S,
  RETRY_AFTER_S,
  METADATA_TEXT_MAX: TEXT_MAX,
  DELEGATED_IN_A_ROW_MAX: IN_A_ROW_MAX,
  HEAD_KIB_MAX: HEAD_BYTES_MAX / KIB,
  INTERIM_HEADS_MAX,
  POINTERS_HELD_MS: HOLD_MS,
  TAGS_MAX,
  TAG_LENGTH_MAX,
  REFUSALS_OF_KEY: REFUSALS_KEPT.ofKey,
  REFUSED_KEYS_OF_API: REFUSALS_KEPT.keysOfApi,
  REFUSALS_OF_API: REFUSALS_KEPT.ofApi,
  REFUSALS_KEPT_DAYS: REFUSALS_KEPT_S / 86_400,
  REFUSALS_WAITING_MAX: WAITING_MAX,
  USAGE_AGAIN_H: AGAIN_MS / HOUR,
};

/** Returns the number that a Lua script declares as a local. */
function inLua(file: string, name: string): number {
  const script = readFileSync(join(ROOT, file), 'utf8');
  for (const [, names = '', values = ''] of script.matchAll(/local ([\w, ]+?) = ([\d, ]+)\n/g)) {
    const place = names.split(', ').indexOf(name);
    if (place >= 0) return Number(values.split(', ')[place]);
  }
  throw new Error(`${file} declares no number ${name}`);
}

/** Returns a page with its marked numbers as the code has them; adds their names to `used`. */
export function withNumbers(page: string, used: Set<string>): string {
  return page.replace(/(<!-- n: (\w+) -->)(\d[\d,.]*(?<=\d)|)/g, (_, mark: string, name: string) => {
    const number = NUMBERS[name];
    if (number === undefined) throw new Error(`no number in page-numbers.ts is called ${name}`);
    used.add(name);
    return mark + number.toLocaleString('en');
  });
}

/** Returns the numbers that no page uses. */
export const unusedNumbers = (used: ReadonlySet<string>): string[] =>
  Object.keys(NUMBERS).filter((name) => !used.has(name));
