import type { Clock } from '#shared/process/clock.ts';
import type { Apis } from './apis/apis.ts';
import type { Audit } from './audit/audit.ts';
import type { Finding } from './fleet/examination.ts';
import type { FleetView } from './fleet/fleet.ts';
import type { Identities } from './identities/identities.ts';
import type { Credits } from './keys/credit-changes.ts';
import type { KeyImport } from './keys/key-import.ts';
import type { KeyView } from './keys/key-view.ts';
import type { Keys } from './keys/keys.ts';
import type { OrderedKeys } from './keys/ordered-keys.ts';
import type { RefusalView } from './keys/refusals.ts';
import type { Successors } from './keys/successors.ts';
import type { LimitView } from './rate-limits/limit-view.ts';
import type { RateLimitOverrides } from './rate-limits/rate-limit-overrides.ts';
import type { Catalogue } from './roles/permissions.ts';
import type { Roles } from './roles/roles.ts';
import type { PublishedRootKeys } from './root-keys/published-root-keys.ts';
import type { RootKeys } from './root-keys/root-keys.ts';
import type { CostlyReads, Turns } from './serve/turns.ts';
import type { Sessions } from './sign-in/sessions.ts';
import type { UsageView } from './usage/usage.ts';
import type { WebhookEndpoints } from './webhooks/endpoints.ts';
import type { Notices } from './webhooks/notices.ts';
import type { Deliveries } from './webhooks/outbox.ts';
import type { ChangeWriter } from './writer/writer.ts';

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
