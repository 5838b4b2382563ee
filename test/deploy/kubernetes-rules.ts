import { schemaFaults } from './kubernetes-schema.ts';
import type { Manifest } from './kustomize.ts';
import { graceMs, settingsOf } from './settings.ts';

/** A container, as far as the rules look into it. */
export interface Container {
  readonly name: string;
  readonly image: string;
  readonly command?: string[];
  readonly restartPolicy?: string;
  readonly env?: { name: string; value?: string; valueFrom?: object }[];
  readonly envFrom?: { configMapRef: { name: string } }[];
  readonly ports?: { name: string; containerPort: number; hostPort?: number }[];
  readonly volumeMounts?: { name: string; mountPath: string; readOnly?: boolean }[];
  readonly resources?: { requests?: Record<string, string>; limits?: Record<string, string> };
  // biome-ignore lint/suspicious/noExplicitAny: probes and security contexts are compared as they are
  readonly [field: string]: any;
}

const LASTING = ['Deployment', 'StatefulSet', 'DaemonSet'];
/** Those that controllers keep running. */
export const workloadsOf = (all: readonly Manifest[]) => all.filter(({ kind }) => LASTING.includes(kind));
/** What pods are made of: metadata and spec. A pod is its own. */
const templateOf = ({ kind, metadata, spec }: Manifest) =>
  kind === 'Pod' ? { metadata, spec } : (spec.jobTemplate?.spec ?? spec).template;
export const podOf = (workload: Manifest) => templateOf(workload).spec;
const withPods = (all: readonly Manifest[]) =>
  all.filter(({ kind }) => [...LASTING, 'CronJob', 'Pod'].includes(kind));
/** Those that run as long as the pod does, sidecars among them; and those that end before it begins. */
function containersOf(workload: Manifest): { lasting: Container[]; passing: Container[] } {
  const { containers, initContainers = [] } = podOf(workload);
  const isSidecar = ({ restartPolicy }: Container) => restartPolicy === 'Always';
  return {
    lasting: [...initContainers.filter(isSidecar), ...containers],
    passing: initContainers.filter((container: Container) => !isSidecar(container)),
  };
}

/** The socket on the node is a hostPath, and somebody must own its folder. */
const ON_NODE = ['hostPath volume', 'socket-folder may be root', 'socket-folder has CHOWN'];

/**
 * Lists whatever is wrong with objects that are installed together: what Kubernetes refuses under strict validation, what does
 * not hang together, and pods that the Pod Security level restricted refuses, except for the socket on the node.
 */
export function faultsOf(all: readonly Manifest[], external: readonly string[] = []): string[] {
  const insecure = withPods(all).flatMap((each) => {
    const allowed = JSON.stringify(podOf(each).volumes).includes('"path":"/run/keyfence"') ? ON_NODE : [];
    return securityFaults(each).filter((fault) => !allowed.includes(fault));
  });
  return [...all.flatMap(schemaFaults), ...ruleFaults(all, external), ...insecure];
}

/**
 * Lists faults that no schema tells and Kubernetes would only show at run time, or never: each fault as `kind/name: what`.
 * @param external ConfigMaps that others bring
 */
export function ruleFaults(all: readonly Manifest[], external: readonly string[] = []): string[] {
  const faults: string[] = [];
  const say = ({ kind, metadata }: Manifest, what: string) =>
    faults.push(`${kind}/${metadata.name}: ${what}`);
  const names = all.map(({ kind, metadata }) => `${kind}/${metadata.namespace ?? ''}/${metadata.name}`);
  for (const name of names)
    if (names.indexOf(name) !== names.lastIndexOf(name)) faults.push(`twice: ${name}`);

  for (const each of all) {
    if (each.kind === 'Secret') say(each, 'secrets are the operator’s to make');
    if (each.kind === 'Service') checkService(each);
    if (each.kind === 'PodDisruptionBudget') checkBudget(each);
    if (each.kind === 'NetworkPolicy') checkNetworkPolicy(each);
  }
  for (const workload of withPods(all)) checkWorkload(workload);
  return faults;

  function selects(selector: { matchLabels?: Labels }): Manifest[] | undefined {
    const found = withPods(all).filter((workload) =>
      isSubset(selector.matchLabels ?? {}, templateOf(workload).metadata.labels),
    );
    return found.length > 0 ? found : undefined;
  }

  function checkService(service: Manifest): void {
    const [workload] = selects({ matchLabels: service['spec'].selector }) ?? [];
    if (!workload) return void say(service, 'selects nothing');
    const ports = containersOf(workload).lasting.flatMap(({ ports = [] }) => ports.map(({ name }) => name));
    for (const { targetPort } of service['spec'].ports) {
      if (!ports.includes(targetPort)) say(service, `no container has a port ${targetPort}`);
    }
  }

  function checkNetworkPolicy(networkPolicy: Manifest): void {
    if (!selects(networkPolicy['spec'].podSelector)) say(networkPolicy, 'selects nothing');
    // Not every network plugin knows the names of a native sidecar's ports.
    for (const { ports = [] } of networkPolicy['spec'].ingress ?? [])
      for (const { port } of ports) if (typeof port !== 'number') say(networkPolicy, `${port} is no number`);
  }

  function checkBudget(budget: Manifest): void {
    if (selects(budget['spec'].selector)?.length !== 1) say(budget, 'must be of one workload');
    if (budget['spec'].maxUnavailable !== 1) say(budget, 'maxUnavailable must be 1');
    if (budget['spec'].unhealthyPodEvictionPolicy !== 'AlwaysAllow') say(budget, 'a sick pod blocks a drain');
  }

  function checkWorkload(workload: Manifest): void {
    const { selector, serviceName } = workload['spec'];
    const { metadata, spec: pod } = templateOf(workload);
    const isLasting = LASTING.includes(workload.kind);
    const fault = (what: string) => say(workload, what);
    if (pod.nodeSelector?.['kubernetes.io/os'] !== 'linux') fault('could be put on a node that is not Linux');
    if (pod.tolerations?.some(({ key }: { key?: string }) => !key)) fault('tolerates every taint');
    if (isLasting && !isSubset(selector.matchLabels, metadata.labels))
      fault('its selector misses its own pods');
    if (isLasting && workload.kind !== 'DaemonSet') {
      const budgets = all.filter(({ kind }) => kind === 'PodDisruptionBudget');
      const own = budgets.filter((budget) => selects(budget['spec'].selector)?.includes(workload));
      if (own.length !== 1) fault('needs one PodDisruptionBudget');
    }
    if (serviceName && !all.some(({ kind, metadata }) => kind === 'Service' && metadata.name === serviceName))
      fault(`no Service ${serviceName}`);
    if (
      isLasting &&
      !all.some(({ kind, metadata }) => kind === 'ServiceAccount' && metadata.name === pod.serviceAccountName)
    )
      fault(`no ServiceAccount ${pod.serviceAccountName}`);

    const maps = new Map(
      all.filter(({ kind }) => kind === 'ConfigMap').map((map) => [map.metadata.name, map]),
    );
    const volumes = new Set<string>((pod.volumes ?? []).map(({ name }: { name: string }) => name));
    for (const { metadata } of workload['spec'].volumeClaimTemplates ?? []) volumes.add(metadata.name);
    for (const { configMap } of pod.volumes ?? []) {
      if (configMap && !maps.has(configMap.name)) fault(`no ConfigMap ${configMap.name}`);
    }
    const { lasting, passing } = containersOf(workload);
    if (lasting.some(({ command }) => command?.includes('verifier/main.js')))
      if (!metadata.labels['keyfence/verifier']) fault('Redis and Prometheus do not know it for a verifier');
    const ports = lasting.flatMap(({ ports = [] }) => ports.map(({ containerPort }) => containerPort));
    if (new Set(ports).size !== ports.length) fault('two containers want one port');
    for (const container of [...lasting, ...passing]) {
      const of = (what: string) => fault(`${container.name}: ${what}`);
      if (!/(:v?\d+\.\d+\.\d+[\w.-]*|@sha256:[0-9a-f]{64})$/.test(container.image))
        of('its image has no version');
      const { requests, limits } = container.resources ?? {};
      if (!requests?.['cpu'] || !requests['memory'] || !limits?.['memory'])
        of('needs requests and a memory limit');
      if (limits?.['cpu']) of('a CPU limit stalls it');
      for (const { name } of container.volumeMounts ?? []) if (!volumes.has(name)) of(`no volume ${name}`);
      const literals = (container.envFrom ?? []).flatMap(({ configMapRef: { name } }) => {
        if (!maps.has(name) && !external.includes(name)) of(`no ConfigMap ${name}`);
        return Object.entries(maps.get(name)?.['data'] ?? {});
      });
      const settings = [...(container.env ?? []).map(({ name, value }) => [name, value]), ...literals];
      const [, preStopS = 0] =
        /^sleep,(\d+)$/.exec(String(container['lifecycle']?.preStop?.exec?.command)) ?? [];
      const neededMs = graceMs(container.command ?? [], Object.fromEntries(settings));
      if (
        neededMs > 0 &&
        Number(preStopS) * 1000 + neededMs > (pod.terminationGracePeriodSeconds ?? 30) * 1000
      )
        of(`is killed before it has stopped, which takes up to ${neededMs} ms`);
      const known = settingsOf(container.command ?? []);
      for (const [name, value] of settings as [string, string?][]) {
        if (known && !known.has(name)) of(`no setting ${name}`);
        if (/PASSWORD$|^ROOT_KEY$|SECRET/.test(name)) of(`${name} belongs in a file`);
        if (/:\/\/[^/]*:[^/]*@/.test(value ?? '')) of(`${name} holds a password`);
        if (name.endsWith('_FILE') && !mountsFile(pod, container, value ?? '')) of(`${name} is not mounted`);
      }
    }
    for (const container of isLasting ? lasting : []) {
      const of = (what: string) => fault(`${container.name}: ${what}`);
      for (const probe of ['readinessProbe', 'livenessProbe']) if (!container[probe]) of(`no ${probe}`);
      for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe']) {
        const port = (container[probe]?.httpGet ?? container[probe]?.tcpSocket)?.port;
        if (port !== undefined && !container.ports?.some(({ name }) => name === port))
          of(`${probe} asks at a port it does not name: ${port}`);
      }
    }
  }
}

/** Rules of the Pod Security Standard `restricted`, and of a read-only root file system, for every container. */
export function securityFaults(workload: Manifest): string[] {
  const pod = podOf(workload);
  const faults: string[] = [];
  for (const field of ['hostNetwork', 'hostPID', 'hostIPC']) if (pod[field]) faults.push(field);
  // Only the operator calls it.
  const isOperator = workload.metadata.labels?.['app.kubernetes.io/component'] === 'operator';
  if (pod.automountServiceAccountToken !== isOperator) faults.push('a token of the API server');
  for (const volume of pod.volumes ?? []) {
    const [kind = ''] = Object.keys(volume).filter((field) => field !== 'name');
    const allowed = 'configMap csi downwardAPI emptyDir ephemeral persistentVolumeClaim projected secret';
    if (!allowed.split(' ').includes(kind)) faults.push(`${kind} volume`);
  }
  const { lasting, passing } = containersOf(workload);
  for (const { name, securityContext: own = {}, ports = [] } of [...passing, ...lasting]) {
    const merged = { ...pod.securityContext, ...own };
    if (merged.runAsNonRoot !== true || merged.runAsUser === 0) faults.push(`${name} may be root`);
    if (merged.seccompProfile?.type !== 'RuntimeDefault') faults.push(`${name} has no seccomp profile`);
    if (own.allowPrivilegeEscalation !== false || own.privileged) faults.push(`${name} may gain rights`);
    if (!own.capabilities?.drop?.includes('ALL')) faults.push(`${name} keeps capabilities`);
    for (const added of own.capabilities?.add ?? []) faults.push(`${name} has ${added}`);
    if (own.readOnlyRootFilesystem !== true) faults.push(`${name} can write to its image`);
    if (ports.some(({ hostPort }) => hostPort)) faults.push(`${name} is on the node's address`);
  }
  return faults;
}

type Labels = Readonly<Record<string, string>>;

const isSubset = (part: Labels, whole: Labels = {}) =>
  Object.entries(part).every(([name, value]) => whole[name] === value);

/** Tells whether a file that a setting names is in a volume that the container mounts, as far as the volume lists files. */
function mountsFile(pod: Manifest['spec'], container: Container, file: string): boolean {
  const mount = container.volumeMounts?.find(({ mountPath }) => file.startsWith(`${mountPath}/`));
  const volume = pod.volumes?.find(({ name }: { name: string }) => name === mount?.name);
  if (!volume) return false;
  const items = volume.projected?.sources.flatMap(
    ({ secret, configMap }: Record<string, { items: { path: string }[] } | undefined>) =>
      (secret ?? configMap)?.items ?? [],
  );
  const rest = file.slice((mount?.mountPath ?? '').length + 1);
  return items === undefined || items.some(({ path }: { path: string }) => path === rest);
}
