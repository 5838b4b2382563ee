import { limitInWords } from '#shared/protocol/records/limit.ts';
import { call, type Identity, type Key, may } from '../api/client.ts';
import { CopyId } from '../parts/copy-id.tsx';
import { counted } from '../parts/counted.ts';
import { Fact } from '../parts/fact.tsx';
import { identityPage } from '../parts/identity-state.tsx';
import { useKeyNames } from '../parts/key-names.ts';
import { useLoad } from '../parts/loading.tsx';
import { Time } from '../parts/time.tsx';
import { Gauge } from '../usage/gauge.tsx';
import { Expiry } from './key-state.tsx';

/** The names of roles, each leading to what it permits. */
export function RoleLinks({ names }: { names: readonly string[] }) {
  if (names.length === 0) return <span class="quiet none">none</span>;
  return names.map((name, i) => (
    <>
      {i > 0 && ', '}
      <a href={`#/roles?${new URLSearchParams({ find: name })}`}>
        <bdi>{name}</bdi>
      </a>
    </>
  ));
}

/** The fields of a key, each with its label. */
export function KeyFacts({ of }: { of: Key }) {
  const identityId = may('root.*.read_identity') ? of.identity?.id : undefined;
  const identity = useLoad(
    async () => identityId && (await call('identities.getIdentity', { identityId })),
    [identityId],
  ).data;
  const shared = identity ? identity.roles : [];
  const names = useKeyNames(
    [of.rerolledTo, of.rerolledFrom].flatMap((keyId) => (keyId ? [{ keyId, apiId: of.apiId }] : [])),
  );
  return (
    <dl class="panel">
      <Fact name="Id">
        <CopyId id={of.keyId} of="the key" />
      </Fact>
      <Fact name="Starts with">
        <code>{of.start}…</code>
      </Fact>
      <Fact name="Customer">
        {of.externalId ? (
          <a href={identityPage(of.externalId)}>
            <bdi>{of.externalId}</bdi>
          </a>
        ) : (
          '–'
        )}
      </Fact>
      {of.environment && <Fact name="Environment">{of.environment}</Fact>}
      {of.permissions && <Fact name="Permissions">{of.permissions.join(' ')}</Fact>}
      {of.roles && (
        <Fact name="Roles">
          <RoleLinks names={of.roles} />
        </Fact>
      )}
      {shared.length > 0 && (
        <Fact name="Roles through its customer">
          <RoleLinks names={shared} />
        </Fact>
      )}
      {of.allowedIps && <Fact name="Allowed addresses">{of.allowedIps.join(' ')}</Fact>}
      {of.allowedOrigins && <Fact name="Allowed origins">{of.allowedOrigins.join(' ')}</Fact>}
      {of.ratelimit && <Fact name="Rate limit">{limitInWords(of.ratelimit)}</Fact>}
      {of.ratelimits?.map((limit) => (
        <Fact key={limit.name} name={`Rate limit ${limit.name}`}>
          {limitInWords(limit)}
        </Fact>
      ))}
      {of.concurrency?.map(({ name, limit }) => (
        <Fact key={name} name={`Concurrency limit ${name}`}>
          {limit.toLocaleString()} at the same time
        </Fact>
      ))}
      <Fact name="Created">
        <Time at={of.createdAt} exact />
      </Fact>
      <Fact name="Changed">
        <Time at={of.updatedAt} placeholder="never" exact />
      </Fact>
      <Fact name="Expires">
        <Expiry of={of} exact />
      </Fact>
      {of.rerolledTo && (
        <Fact name="Replaced by">
          <a href={`#/keys/${of.rerolledTo}`}>{names.get(of.rerolledTo) ?? of.rerolledTo}</a>
        </Fact>
      )}
      {of.rerolledFrom && (
        <Fact name="Replaces">
          <a href={`#/keys/${of.rerolledFrom}`}>{names.get(of.rerolledFrom) ?? of.rerolledFrom}</a>
        </Fact>
      )}
      {Object.keys(of.meta ?? {}).length > 0 && (
        <Fact name="Meta">
          <code>{JSON.stringify(of.meta)}</code>
        </Fact>
      )}
      <Fact name="Last accepted">
        <Time at={of.lastUsedAt} placeholder="never" exact />
      </Fact>
      <Fact name="Last refused">
        <Time at={of.lastRefusedAt} placeholder="never" exact />
      </Fact>
    </dl>
  );
}

/** The credits of a key or an identity: what is left, how much of that verifiers hold, and the refill. */
export function Credits({ of = {}, isShared }: { of: Identity['credits']; isShared: boolean }) {
  const { remaining, remainingHeld = 0, remainingLost, refill } = of;
  if (remaining === undefined) return <p class="quiet">No credits are counted for this key.</p>;
  const heldCount = Math.min(remainingHeld, remaining);
  return (
    <div class="panel">
      <Gauge
        label="Credits"
        title={`${counted(remaining, 'credit')} left`}
        parts={[
          { name: 'free', tone: 'good', value: remaining - heldCount },
          { name: 'at verifiers', tone: 'other', value: heldCount },
        ]}
        whole={Math.max(1, remaining, refill?.amount ?? 0)}
      />
      {refill && (
        <p>
          Refilled to {refill.amount.toLocaleString()} {refill.interval}
          {refill.refillDay !== undefined && ` on day ${refill.refillDay}`}
          {refill.anchor ? ` (${JSON.stringify(refill.anchor)})` : ' at 00:00 UTC'}; last{' '}
          <Time at={refill.lastRefillAt} placeholder="never" exact />
        </p>
      )}
      {isShared && <p class="quiet">All keys of the customer without credits of their own share these.</p>}
      {remainingLost !== undefined && (
        <p class="quiet">{remainingLost.toLocaleString()} were lost with verifiers that crashed.</p>
      )}
    </div>
  );
}
