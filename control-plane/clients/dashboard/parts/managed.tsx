import { Badge } from './badge.tsx';
import { Time } from './time.tsx';

interface Declared {
  readonly managedBy?: string;
  readonly driftedAt?: number;
}

/** An operator names the cluster and the object. */
const OBJECT = /^[0-9a-f-]{36}\/([0-9a-f-]{36})$/;

/** Says who declares a thing, since when it was changed elsewhere, and that such changes do not last. */
export function Managed({ of: { managedBy, driftedAt }, name }: { of: Declared; name?: string }) {
  if (managedBy === undefined) return null;
  const [, uid] = OBJECT.exec(managedBy) ?? [];
  return (
    <p>
      {name !== undefined && <bdi>{name}</bdi>}{' '}
      <Badge kind="warn">
        Managed by {uid === undefined ? <bdi>{managedBy}</bdi> : <>a Kubernetes object, {uid}</>}
      </Badge>{' '}
      {driftedAt !== undefined && (
        <strong>
          Changed by hand since <Time at={driftedAt} exact />.{' '}
        </strong>
      )}
      <span class="quiet">The next change there replaces what you change here.</span>
    </p>
  );
}
