import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { RELEASES } from '../../../deploy/dev/go-tools.ts';
import { helmArguments } from '../helm.ts';
import { CHOICES } from '../helm-choices.ts';
import { podOf, workloadsOf } from '../kubernetes-rules.ts';
import { KUBERNETES, type Manifest, objectsOf } from '../kustomize.ts';
import { Cluster, listOf } from './cluster.ts';
import { definitions } from './definitions.ts';

/** Folders that are complete by themselves; components are in one or the other. */
const folders = globSync('**/kustomization.yaml', { cwd: KUBERNETES })
  .filter((file) => parse(readFileSync(join(KUBERNETES, file), 'utf8')).kind === 'Kustomization')
  .map((file) => dirname(file))
  .sort();
/** The release in which an admission policy may change what it admits. */
const hasInjection = (release: string) => Number(release.split('.')[1]) >= 36;
const onNode = (all: readonly Manifest[]) => JSON.stringify(all).includes('hostPath');

describe.each(RELEASES)('Kubernetes %s', (release) => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start(release);
    cluster.kubectlWith(JSON.stringify(definitions), 'apply', '-f', '-');
    for (const [name, os] of Object.entries({ linux: 'linux', windows: 'windows' })) addNode(name, os);
  });
  afterAll(() => cluster?.stop());

  it('is of that release', () => {
    expect(JSON.parse(cluster.kubectl('version', '-o', 'json')).serverVersion.gitVersion).toBe(release);
  });

  describe.each(folders)('deploy/kubernetes/%s', (folder) => {
    const withInjection = /injection/.test(folder);
    if (withInjection && !hasInjection(release)) {
      it('is refused, because there is no such policy yet', () => {
        const { status, stderr } = cluster.try('apply', '-k', join(KUBERNETES, folder), '--dry-run=server');
        expect(status).not.toBe(0);
        expect(stderr).toContain('no matches for kind "MutatingAdmissionPolicy"');
      });
      return;
    }

    it('is taken under strict validation, again without a change, and its pods are made', async () => {
      const all = cluster.objects('kustomize', join(KUBERNETES, folder));
      const own = all.find(({ kind }) => kind === 'Namespace');
      // What names its namespace is put there; the rest where it is told to.
      const stated = all.find(({ metadata }) => metadata.namespace !== undefined)?.metadata.namespace;
      const namespace = stated ?? `folder-${folder.replaceAll('/', '-')}`;
      const here = ['-k', join(KUBERNETES, folder), ...(stated ? [] : ['--namespace', namespace])];
      await untilGone(namespace);
      if (own) cluster.apply([own]);
      else cluster.makeNamespace(namespace, onNode(all) ? 'privileged' : 'restricted');
      try {
        const strict = ['--validate=strict', '--dry-run=server'];
        cluster.kubectl('apply', ...here, ...strict);
        // Its namespace was just applied by the client, which the server would mention.
        const objects = all.filter((object) => object !== own);
        cluster.kubectlWith(
          listOf(objects),
          'apply',
          '-f',
          '-',
          ...here.slice(2),
          ...strict,
          '--server-side',
        );
        cluster.kubectl('apply', ...here, '--validate=strict');
        const differences = () => cluster.try('diff', ...here);
        expect(differences()).toMatchObject({ status: 0, stdout: '' });
        cluster.kubectl('apply', ...here);
        expect(differences()).toMatchObject({ status: 0, stdout: '' });
        await podsOf(all, namespace);
      } finally {
        cluster.try('delete', ...here, '--wait=false');
        remove(namespace);
      }
    });
  });

  describe.each(Object.entries(CHOICES))('the chart, %s', (name, choices) => {
    const { 'verifier.injection.enabled': injection, ...others } = choices;
    const values = injection && hasInjection(release) ? choices : others;

    it('is taken under strict validation, again without a change, and its pods are made', async () => {
      const namespace = `chart-${Object.keys(CHOICES).indexOf(name)}`;
      const [, chart = '', ...set] = helmArguments({ values, namespace });
      const kube = ['--kube-version', release];
      const all = objectsOf(cluster.helm('template', 'keyfence', chart, ...set, ...kube));
      cluster.makeNamespace(namespace, onNode(all) ? 'privileged' : 'restricted');
      const elsewhere = (values['verifier.namespaces'] ?? []) as string[];
      for (const each of elsewhere) cluster.makeNamespace(each, 'restricted');
      try {
        // The pod of `helm test` is among them.
        cluster.kubectlWith(listOf(all), 'apply', '-f', '-', '--validate=strict', '--dry-run=server');
        cluster.helm('install', 'keyfence', chart, ...set);
        await podsOf(
          all.filter(({ metadata }) => !metadata.annotations?.['helm.sh/hook']),
          namespace,
        );
        const manifest = cluster.helm('get', 'manifest', 'keyfence', '--namespace', namespace);
        writeFileSync(join(cluster.directory, 'manifest'), manifest);
        const compared = ['--server-side', '--force-conflicts', '--field-manager', 'somebody-else'];
        const differences = () => cluster.try('diff', ...compared, '-f', join(cluster.directory, 'manifest'));
        expect(differences()).toMatchObject({ status: 0, stdout: '' });
        cluster.helm('upgrade', 'keyfence', chart, ...set);
        expect(differences()).toMatchObject({ status: 0, stdout: '' });
      } finally {
        cluster.helm(
          'uninstall',
          'keyfence',
          '--namespace',
          namespace,
          '--ignore-not-found',
          '--wait=hookOnly',
        );
        for (const each of [namespace, ...elsewhere]) remove(each);
      }
    });
  });

  /** Has a namespace deleted, which goes on by itself. */
  function remove(namespace: string): void {
    cluster.try('delete', 'namespace', namespace, '--wait=false');
  }

  function untilGone(namespace: string): Promise<void> {
    return cluster.until(
      () => cluster.try('get', 'namespace', namespace).status !== 0,
      `${namespace} is gone`,
    );
  }

  function addNode(name: string, os: string): void {
    cluster.apply([
      { apiVersion: 'v1', kind: 'Node', metadata: { name, labels: { 'kubernetes.io/os': os } } },
    ]);
  }

  /** Waits until controllers have made as many pods as each workload wants, and no admission refused one. */
  async function podsOf(all: readonly Manifest[], namespace: string): Promise<void> {
    for (const workload of workloadsOf(all)) {
      const { replicas = 1, selector } = workload['spec'];
      // One node can run them; the other is for Windows.
      const wanted = workload.kind === 'DaemonSet' ? 1 : replicas;
      const labels = Object.entries(selector.matchLabels).map(([label, value]) => `${label}=${value}`);
      const counted = () => JSON.parse(get('pods', '-l', labels.join())).items.length;
      await cluster
        .until(() => counted() >= wanted, `${workload.kind} ${workload.metadata.name} has pods`)
        .catch((error) => {
          throw new Error(get('events'), { cause: error });
        });
      expect(counted(), workload.metadata.name).toBe(wanted);
      expect(podOf(workload).containers.length).toBeGreaterThan(0);
    }
    const failed = JSON.parse(get('events')).items.filter(
      ({ reason }: { reason: string }) => reason === 'FailedCreate',
    );
    expect(failed.map(({ message }: { message: string }) => message)).toEqual([]);

    function get(...args: string[]): string {
      return cluster.kubectl('get', ...args, '-n', namespace, '-o', 'json');
    }
  }
});
