import type { Clock } from '#shared/process/clock.ts';
import { AdminError } from '../client/admin.ts';
import type { Operations } from '../client/interface.ts';
import { type Kube, KubeError, type KubeObject, type Resource } from './kube.ts';
import { type Condition, eventsIn, GROUP, KINDS, VERSION } from './objects.ts';

/** Something that the user of an object must mend. */
export class Unready extends Error {
  readonly reason: string;

  constructor(reason: string, message: string) {
    super(message);
    this.reason = reason;
  }
}

/** The new parts of an object's status. Other fields of it stay. */
export interface Report {
  readonly conditions: readonly Pick<Condition, 'type' | 'status' | 'reason' | 'message'>[];
  readonly [field: string]: unknown;
}

interface Reported extends KubeObject {
  readonly kind?: string;
  readonly status?: { readonly conditions?: readonly Condition[] };
}

export type Propagation = Operations['keys.updateKey']['output']['propagation'];

const MESSAGE_MAX = 1000;
/** Conditions that no event tells of when they are there for the first time. */
const QUIET: ReadonlySet<string> = new Set(['InSync', 'AllKeysHaveObjects', 'DeletionsPass']);
/** Reasons that are no news while an object is on its way. */
const PASSING: ReadonlySet<string> = new Set(['Waiting']);

/** Writes status and events, where they say something new. */
export class Reporter {
  readonly #kube: Kube;
  readonly #clock: Clock;

  constructor(kube: Kube, clock: Clock) {
    this.#kube = kube;
    this.#clock = clock;
  }

  async report(object: Reported, resource: Resource, report: Report): Promise<void> {
    const { metadata, status = {} } = object;
    const before = status.conditions ?? [];
    const now = new Date(this.#clock.wallMs()).toISOString().replace(/\.\d+Z$/, 'Z');
    const conditions = report.conditions.map((condition): Condition => {
      const old = before.find(({ type }) => type === condition.type);
      const lastTransitionTime = old?.status === condition.status ? old.lastTransitionTime : now;
      const message = condition.message.slice(0, MESSAGE_MAX);
      const { generation } = metadata;
      return {
        ...condition,
        message,
        lastTransitionTime,
        ...(generation ? { observedGeneration: generation } : {}),
      };
    });
    const others = before.filter(({ type }) => !conditions.some((condition) => condition.type === type));
    const after = { ...status, ...report, conditions: [...others, ...conditions] };
    if (canonical(after) === canonical(status)) return;
    await this.#kube.patch(resource, metadata.name, { status: after }, 'status');
    for (const condition of conditions) {
      const old = before.find(({ type }) => type === condition.type);
      if (
        old?.reason !== condition.reason &&
        !PASSING.has(condition.reason) &&
        (old || !QUIET.has(condition.type))
      )
        await this.tell(object, resource, condition);
    }
  }

  /** Writes an event. One that is lost is not missed: where something stays so, a condition says it. */
  async tell(
    { metadata }: Reported,
    resource: Resource,
    { type, status, reason, message }: Report['conditions'][number],
  ): Promise<void> {
    const { name, namespace = 'default', uid } = metadata;
    const kind = KINDS[resource.plural];
    const now = new Date(this.#clock.wallMs()).toISOString().replace(/\.\d+Z$/, 'Z');
    try {
      await this.#kube.create(eventsIn(namespace), {
        ...{ apiVersion: 'v1', kind: 'Event', reason, message, count: 1 },
        metadata: { generateName: `${name.slice(0, 200)}-`, namespace },
        type: status !== 'False' || reason === 'Pending' ? 'Normal' : 'Warning',
        involvedObject: { apiVersion: `${GROUP}/${VERSION}`, kind, name, namespace, uid, fieldPath: type },
        ...{ source: { component: 'keyfence-operator' } },
        ...{ firstTimestamp: now, lastTimestamp: now },
      });
    } catch (error) {
      if (!(error instanceof KubeError)) throw error;
    }
  }
}

/** Equal texts mean equal values, whatever the order of their fields. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    part !== null && typeof part === 'object' && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}

/** Returns what is wrong with an object itself; undefined = the error may pass. */
export function unreadyOf(error: unknown): { reason: string; message: string } | undefined {
  if (error instanceof Unready) return error;
  const isRefusal = error instanceof AdminError && ['BAD_REQUEST', 'VERIFIERS_TOO_OLD'].includes(error.code);
  return isRefusal ? { reason: 'Refused', message: (error as AdminError).message } : undefined;
}

/** Returns why Keyfence did not answer a call as it should, as a condition; undefined = it is something else. */
export function hinderedBy(error: unknown): Report['conditions'][number] | undefined {
  if (!(error instanceof AdminError)) return undefined;
  const { code, status = 0, message } = error;
  const isAway = code === 'UNREACHABLE' || code === 'NOT_KEYFENCE' || status >= 500;
  const reason =
    { 401: 'Unauthorized', 403: 'NotPermitted', 429: 'RateLimited' }[status] ?? (isAway && 'Unreachable');
  return reason ? { type: 'Ready', status: 'Unknown', reason, message } : undefined;
}

/** The condition of an object that was not compared with Keyfence yet. */
export const WAITING: Report['conditions'][number] = {
  ...{ type: 'Ready', status: 'Unknown', reason: 'Waiting' },
  message: 'it was not compared with Keyfence yet',
};

/** Returns whether an object is as declared for every verifier, as a condition: while one may not know it, it is not ready. */
export const readyOf = (
  propagation: Propagation,
  reason: string,
  message: string,
): Report['conditions'][number] =>
  propagation.state === 'pending'
    ? { ...propagated(propagation), type: 'Ready', status: 'Unknown' }
    : { type: 'Ready', status: 'True', reason, message };

/** Throws CONFLICT if a later change set something else, so that the next look reads the record again. */
export function refuseOvertaken({ overtakenBy }: Propagation): void {
  if (overtakenBy !== undefined)
    throw new AdminError('CONFLICT', `change ${overtakenBy} came after it and set something else`);
}

/** Returns how far a change has come, as a condition. */
export function propagated(propagation: Propagation): Report['conditions'][number] {
  const { state, durable, sequence } = propagation;
  const laggards = 'laggards' in propagation ? (propagation.laggards as readonly string[]) : [];
  if (state === 'pending') {
    const tokens =
      'tokens' in propagation && propagation.tokens === 'pending' && propagation.by !== undefined;
    if (tokens) {
      const message = `every verifier answers by change ${sequence}, but a token from before may be accepted`;
      return { type: 'Propagated', status: 'False', reason: 'Pending', message };
    }
    const names = laggards.length > 0 ? ` by ${laggards.slice(0, 3).join(', ')}` : ' by every verifier';
    const message = `change ${sequence} is not confirmed${names} yet`;
    return { type: 'Propagated', status: 'False', reason: 'Pending', message };
  }
  return durable
    ? { type: 'Propagated', status: 'True', reason: 'Complete', message: 'every verifier answers by it' }
    : {
        ...{ type: 'Propagated', status: 'True', reason: 'NotDurable' },
        message: 'every verifier answers by it, but Redis could lose it in a crash',
      };
}

/** Returns whether things are as declared, as a condition. */
export function driftOf(
  drifted: readonly { readonly id: string; readonly driftedAt?: number }[],
): Report['conditions'][number] {
  const [first] = drifted;
  const since = new Date(first?.driftedAt ?? 0).toISOString();
  return first
    ? {
        ...{ type: 'InSync', status: 'False', reason: 'ChangedByHand' },
        message: `${first.id} was changed by another call since ${since}; the next change of spec replaces that`,
      }
    : { type: 'InSync', status: 'True', reason: 'AsDeclared', message: 'it is as this object says' };
}
