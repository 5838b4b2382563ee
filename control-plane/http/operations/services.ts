import type { Clock } from '#shared/lang/clock.ts';
import type { CostlyReads, Turns } from '../../core/turns.ts';
import type { Apis } from '../../redis/apis.ts';
import type { Audit } from '../../redis/audit.ts';
import type { RootKeys } from '../../redis/callers/root-keys.ts';
import type { Sessions } from '../../redis/callers/sessions.ts';
import type { Finding } from '../../redis/examination/finding.ts';
import type { FleetView } from '../../redis/fleet.ts';
import type { Credits } from '../../redis/keys/credit-changes.ts';
import type { KeyImport } from '../../redis/keys/key-import.ts';
import type { KeyView } from '../../redis/keys/key-view.ts';
import type { Keys } from '../../redis/keys/keys.ts';
import type { OrderedKeys } from '../../redis/keys/ordered-keys.ts';
import type { Successors } from '../../redis/keys/successors.ts';
import type { LimitView } from '../../redis/limit-view.ts';
import type { RefusalView } from '../../redis/refusals.ts';
import type { Identities } from '../../redis/shared-log/identities.ts';
import type { Catalogue } from '../../redis/shared-log/permissions.ts';
import type { PublishedRootKeys } from '../../redis/shared-log/published-root-keys.ts';
import type { RateLimitOverrides } from '../../redis/shared-log/rate-limit-overrides.ts';
import type { Roles } from '../../redis/shared-log/roles.ts';
import type { UsageView } from '../../redis/usage.ts';
import type { Deliveries } from '../../redis/webhooks/deliveries.ts';
import type { WebhookEndpoints } from '../../redis/webhooks/endpoints.ts';
import type { Notices } from '../../redis/webhooks/notices.ts';
import type { ChangeWriter } from '../../writer/writer.ts';

/** The outcome of a test event. */
interface TestResult {
  readonly delivered: boolean;
  readonly eventId: string;
  readonly durationMs: number;
  readonly status?: number;
  readonly response?: string;
  readonly error?: string;
}

/** Everything that operations act on. */
export interface Services {
  readonly apis: Apis;
  readonly audit: Audit;
  readonly catalogue: Catalogue;
  readonly clock: Clock;
  readonly costlyReads: CostlyReads;
  readonly credits: Credits;
  readonly deliveries: Deliveries;
  readonly endpoints: WebhookEndpoints;
  /** Examines the settings of Redis and the fleet. Rejects with SERVICE_UNAVAILABLE. */
  readonly examine: () => Promise<readonly Finding[]>;
  readonly fleet: FleetView;
  readonly identities: Identities;
  readonly keyImport: KeyImport;
  readonly keys: Keys;
  readonly orderedKeys: OrderedKeys;
  readonly overrides: RateLimitOverrides;
  readonly changeWriter: ChangeWriter;
  readonly limits: LimitView;
  /** The turns of calls that change the lists of one key. */
  readonly listTurns: Turns;
  readonly notices: Notices;
  readonly refusals: RefusalView;
  readonly publishedRootKeys: PublishedRootKeys;
  readonly roles: Roles;
  readonly rootKeys: RootKeys;
  readonly sessions: Sessions;
  readonly successors: Successors;
  readonly usage: UsageView;
  readonly view: KeyView;
  /** Sends an event to a webhook endpoint at once. */
  readonly testEndpoint: (endpointId: string) => Promise<TestResult | undefined>;
  /** Returns the rule that the URL of a webhook endpoint breaks; undefined = it may be used. */
  readonly urlFault: (url: string) => string | undefined;
  /** Maximum duration of a call of many steps, milliseconds. */
  readonly holdMs: number;
}
