import type { Follower } from '../protocol/follower/follower.ts';
import type { Entry } from '../protocol/follower/key-cache.ts';
import type { EffectivePermissions } from '../protocol/follower/permissions.ts';
import type { Limit, LimitRequirement } from '../protocol/records/limits-in-memory.ts';
import type { Query } from '../rules/permission-query.ts';
import type { Presenter } from '../rules/presenter.ts';
import type { RuleName } from '../rules/rules.ts';
import type { VerdictCode } from '../rules/verdict-codes.ts';

/** A verdict, as far as reports tell of it. */
export interface ReportedVerdict {
  readonly code: VerdictCode;
  readonly entry?: Entry;
  /** The key of a verdict that does not show it; undefined = `entry`, or none. Never part of an answer. */
  readonly about?: Entry;
  /** The rule that the key broke; undefined = none. */
  readonly rule?: RuleName;
  /** The rest of credits and limits; undefined = the key has none, or was refused anyway. */
  readonly spending?: {
    readonly remaining?: number | undefined;
    readonly limits?: readonly ReportedLimit[] | undefined;
    readonly places?: readonly ReportedLimit[] | undefined;
  };
  /**
   * The key's effective permissions; undefined = it has neither roles nor an identity, and `entry` is enough.
   */
  readonly effectivePermissions?: EffectivePermissions | undefined;
}

interface ReportedLimit {
  readonly limit: Pick<Limit, 'name' | 'limit' | 'durationMs'>;
  readonly remaining: number;
  /** True if the key was refused because of this limit. */
  readonly exceeded: boolean;
}

/** The question, as far as reports tell of it. */
export interface ReportedQuestion {
  readonly apiId: string | undefined;
  readonly presenter: Presenter;
  readonly requirements: {
    readonly permissions?: Query | undefined;
    readonly cost: number;
    readonly limits: readonly LimitRequirement[];
  };
}

/** A request that was refused. */
export interface RefusedRequest {
  /** As the answer has it; `''` = it has none. */
  readonly requestId: string;
  /** Method and path of the client's request, without the query; undefined = unknown. */
  readonly route?: string | undefined;
}

/** A verifier, as far as it reports of itself. */
export interface ReportedVerifier {
  readonly id: string;
  readonly followers: readonly Follower[];
  readonly cache: { readonly size: number };
  readonly sharedLog: Follower | undefined;
}
