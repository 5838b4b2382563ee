import type { Clock } from '#shared/lang/clock.ts';
import type { Propagator } from '../../core/propagation.ts';
import type { Apis } from '../../redis/apis.ts';
import type { Audit } from '../../redis/audit.ts';
import type { Credits } from '../../redis/credits.ts';
import type { FleetView } from '../../redis/fleet.ts';
import type { KeyImport } from '../../redis/key-import.ts';
import type { KeyView } from '../../redis/key-view.ts';
import type { Keys } from '../../redis/keys.ts';
import type { RootKeys } from '../../redis/root-keys.ts';
import type { Successors } from '../../redis/successors.ts';
import type { UsageView } from '../../redis/usage.ts';
import type { Identities } from '../../redis/workspace/identities.ts';
import type { Catalogue } from '../../redis/workspace/permissions.ts';
import type { Roles } from '../../redis/workspace/roles.ts';

/** All that operations act on. */
export interface Services {
  readonly apis: Apis;
  readonly audit: Audit;
  readonly catalogue: Catalogue;
  readonly clock: Clock;
  readonly credits: Credits;
  readonly fleet: FleetView;
  readonly identities: Identities;
  readonly keyImport: KeyImport;
  readonly keys: Keys;
  readonly propagator: Propagator;
  readonly roles: Roles;
  readonly rootKeys: RootKeys;
  readonly successors: Successors;
  readonly usage: UsageView;
  readonly view: KeyView;
  /** The longest time for which a call of many steps goes on, milliseconds. */
  readonly holdMs: number;
}
