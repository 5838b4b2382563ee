import type { Node } from './redis-settings.ts';

const SLOTS = 16_384;

/** Slots that follow each other, and the primary that has them. */
export interface SlotRange {
  readonly from: number;
  readonly to: number;
  readonly node: Node;
}

/** The account that one node gives of its Cluster, which may be old, or of another Cluster. */
export interface ClusterView {
  /** The ids of all nodes that it knows. */
  readonly ids: ReadonlySet<string>;
  readonly replicas: readonly Node[];
  readonly ranges: readonly (SlotRange & { readonly epoch: number })[];
}

type Host = readonly [host: string, port: number, id: string, metadata?: unknown[]];

/**
 * Reads the replies to CLUSTER SLOTS and CLUSTER NODES.
 * @param nodes undefined = the user may not ask for it, so that no view is known to be newer than another
 * @param hostOf returns the host by which a node is reached; `''` = that of the node which answered
 */
export function viewOf(
  slots: readonly (readonly [number, number, ...Host[]])[],
  nodes: string | undefined,
  answering: Node,
  hostOf: (host: Host) => string,
): ClusterView {
  const epochs = new Map<string, number>();
  // <id> <address> <flags> <primary> <ping> <pong> <epoch> <link> <slots>
  for (const line of nodes?.split('\n') ?? []) {
    const [id = '', , , , , , epoch = ''] = line.split(' ');
    if (id !== '') epochs.set(id, Number(epoch) || 0);
  }
  const nodeOf = (host: Host): Node => ({ host: hostOf(host) || answering.host, port: host[1] });
  const hosts = slots.flatMap(([, , ...of]) => of);
  return {
    ids: new Set([...epochs.keys(), ...hosts.map(([, , id]) => id)]),
    replicas: slots.flatMap(([, , , ...replicas]) => replicas.map(nodeOf)),
    ranges: slots.flatMap(([from, to, primary]) =>
      primary ? [{ from, to, node: nodeOf(primary), epoch: epochs.get(primary[2]) ?? 0 }] : [],
    ),
  };
}

/** Tells whether two accounts are of the same Cluster, as far as they have a node in common. */
export const isOfSame = (view: ClusterView, ids: ReadonlySet<string>): boolean =>
  ids.size === 0 || [...view.ids].some((id) => ids.has(id));

/**
 * Returns the owners of slots as the newest of these accounts of one Cluster have them: of each slot, that with the highest
 * configuration epoch, which Redis raises at each failover and move. An account that lacks slots, such as that of a node that
 * was removed, counts only if none has them all.
 */
export function newestOwners(views: readonly ClusterView[]): SlotRange[] {
  const whole = views.filter((view) => slotsIn(view) === SLOTS);
  const owners: { node: Node; epoch: number }[] = [];
  for (const { ranges } of whole.length > 0 ? whole : views)
    for (const { from, to, node, epoch } of ranges)
      for (let slot = from; slot <= to; slot++)
        if (epoch > (owners[slot]?.epoch ?? -1)) owners[slot] = { node, epoch };
  const merged: { from: number; to: number; node: Node }[] = [];
  for (const [slot, present] of owners.entries()) {
    const last = merged.at(-1);
    if (present === undefined) continue;
    if (last && last.to === slot - 1 && isSameNode(last.node, present.node)) last.to = slot;
    else merged.push({ from: slot, to: slot, node: present.node });
  }
  return merged;
}

const slotsIn = ({ ranges }: ClusterView): number =>
  ranges.reduce((sum, { from, to }) => sum + to - from + 1, 0);

export const isSameNode = (a: Node, b: Node): boolean => a.host === b.host && a.port === b.port;
