import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { definitionsPath, ensureDefinitions, RELEASES } from '../../../deploy/dev/go-tools.ts';
import { objectsOf } from '../kustomize.ts';
import { Cluster, listOf } from './cluster.ts';

const RECIPES = join(import.meta.dirname, '..', '..', '..', 'deploy', 'gateways', 'gateway-api');
/** Gateway API 1.6 needs a newer Kubernetes than the oldest of them. */
const [RELEASE] = RELEASES;
const textOf = (file: string) => readFileSync(join(RECIPES, file), 'utf8');
/** Those whose kinds are all defined in `definitionsPath`. */
const FILES = ['external-auth.yaml', 'nginx-gateway-fabric.yaml', 'envoy-gateway.yaml', 'istio.yaml'];

describe(`the recipes for the Gateway API on Kubernetes ${RELEASE}, with the definitions of their makers`, () => {
  let cluster: Cluster;
  beforeAll(async () => {
    ensureDefinitions();
    cluster = await Cluster.start(RELEASE);
    // The client would note all of a definition in an annotation, which is too small for some.
    const definitions = objectsOf(readFileSync(definitionsPath, 'utf8'));
    cluster.kubectlWith(listOf(definitions), 'apply', '--server-side', '-f', '-');
    cluster.kubectl('wait', '--for=condition=Established', 'crd', '--all', '--timeout=60s');
    for (const namespace of ['shop', 'keyfence']) cluster.makeNamespace(namespace, 'restricted');
  });
  afterAll(() => cluster?.stop());

  it.each(FILES)('%s is taken under strict validation, and again without a change', (file) => {
    const path = join(RECIPES, file);
    try {
      cluster.kubectl('apply', '-f', path, '--validate=strict', '--server-side', '--dry-run=server');
      cluster.kubectl('apply', '-f', path, '--validate=strict');
      expect(cluster.try('diff', '-f', path)).toMatchObject({ status: 0, stdout: '' });
    } finally {
      cluster.try('delete', '-f', path, '--wait=false');
    }
  });

  it.each([
    [
      'a filter with fields of two protocols',
      'external-auth.yaml',
      'protocol: HTTP\n            backendRef',
      'protocol: GRPC\n            backendRef',
      'grpc must be specified',
    ],
    ['an unknown field', 'external-auth.yaml', 'allowedHeaders:', 'allowedHeader:', 'unknown field'],
    [
      'a policy for a kind that takes none',
      'envoy-gateway.yaml',
      'kind: HTTPRoute\n      name: shop',
      'kind: Service\n      name: shop',
      'targetRefs',
    ],
    ['an unknown action', 'istio.yaml', 'action: CUSTOM', 'action: ASK', 'action'],
  ])('%s is refused', (_, file, before, after, why) => {
    const spoiled = textOf(file).replace(before, after);
    expect(spoiled).not.toBe(textOf(file));
    const objects = listOf(objectsOf(spoiled));
    expect(() =>
      cluster.kubectlWith(
        objects,
        'apply',
        '-f',
        '-',
        '--validate=strict',
        '--server-side',
        '--dry-run=server',
      ),
    ).toThrow(why);
  });
});
