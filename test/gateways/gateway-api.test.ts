import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { checkQuestion } from '../../verifier/doors/grpc/check.ts';
import { parseAuthzPath } from '../../verifier/doors/http/authz.ts';
import type { Manifest } from '../deploy/kustomize.ts';
import { definitionFaults, hasDefinition, noDefinitions } from './definitions.ts';

const DEPLOY = join(import.meta.dirname, '..', '..', 'deploy');
const read = (...path: string[]) => {
  const documents = parseAllDocuments(readFileSync(join(DEPLOY, ...path), 'utf8'));
  for (const { errors, warnings } of documents) expect([...errors, ...warnings]).toEqual([]);
  return documents.map((document) => document.toJS() as Manifest);
};

/** The recipes, each with how it asks. Kinds whose definitions no registry has are held to a list of fields. */
const RECIPES = {
  'external-auth.yaml': { asks: 'ext-authz' },
  'nginx-gateway-fabric.yaml': { asks: 'auth-request' },
  'envoy-gateway.yaml': { asks: 'gRPC' },
  'kgateway.yaml': { asks: 'gRPC' },
  'istio.yaml': { asks: 'providers' },
} as const;
const REPORTS = 'reports.read';
const SETTINGS = { sources: ['bearer'], withMeta: false, allowPreflight: false, needsApi: true } as const;

const of = (kind: string, all: readonly Manifest[]) => all.filter((each) => each.kind === kind);
const namesOf = (all: readonly Manifest[]) => all.map(({ metadata }) => metadata.name);
/** The objects anywhere within a value that have this field. */
// biome-ignore lint/suspicious/noExplicitAny: manifests are looked into as they are
function within(value: any, field: string): any[] {
  if (typeof value !== 'object' || value === null) return [];
  const own = field in value ? [value[field]] : [];
  return [...own, ...Object.values(value).flatMap((inner) => within(inner, field))];
}

describe.each(Object.entries(RECIPES))('deploy/gateways/gateway-api/%s', (file, { asks }) => {
  const all = read('gateways/gateway-api', file);

  test.skipIf(noDefinitions !== '')(`is what its makers define${noDefinitions}`, () => {
    const foreign = all.filter(({ apiVersion }) => !apiVersion.startsWith('gateway.kgateway.dev/'));
    expect(foreign.length).toBeGreaterThan(2);
    for (const each of foreign)
      expect([each.kind, each.metadata.name, definitionFaults(each)]).toEqual([
        each.kind,
        each.metadata.name,
        [],
      ]);
  });

  test('hangs together: gateways, hosts and policies', () => {
    const routes = of('HTTPRoute', all);
    expect(namesOf(routes)).toEqual(['shop', 'reports']);
    for (const { metadata, spec } of routes) {
      expect(metadata.namespace).toBe('shop');
      for (const { name } of spec.parentRefs) expect(namesOf(of('Gateway', all))).toContain(name);
      // A host and a Service of its own, so that no spelling of a path leads around the permission.
      expect(spec.hostnames).toEqual([`${metadata.name}.example`]);
      expect(within(spec.rules, 'backendRefs').flat()).toContainEqual({ name: metadata.name, port: 8080 });
      expect(spec.rules).toHaveLength(1);
      expect(spec.rules[0].matches).toBeUndefined();
    }
    for (const { name, kind } of within(all, 'targetRefs').flat())
      expect(namesOf(of(kind, all))).toContain(name);
    for (const { name } of within(all, 'extensionRef'))
      expect(namesOf(of('GatewayExtension', all))).toContain(name);
  });

  test('may ask the verifiers for gateways', () => {
    const [service] = of('Service', read('kubernetes/verifier-for-gateways/keyfence.yaml'));
    const ports = new Map<string, number>(
      service?.['spec'].ports.map(({ name, port }: { name: string; port: number }) => [name, port]),
    );
    const port = ports.get(asks === 'gRPC' ? 'grpc' : 'http');
    const refs = [...within(all, 'backendRef'), ...within(all, 'backendRefs').flat()].filter(
      ({ namespace }) => namespace === 'keyfence',
    );
    if (asks === 'providers') return expect(refs).toEqual([]);
    expect(refs.length).toBeGreaterThan(0);
    for (const ref of refs)
      expect(ref).toEqual({ name: service?.metadata.name, namespace: 'keyfence', port });
    // Those who refer to the Service from another namespace.
    const holders = all.filter(
      (each) =>
        each.kind !== 'ReferenceGrant' &&
        JSON.stringify(each).includes('"keyfence"') &&
        within(each, 'namespace').includes('keyfence'),
    );
    const [grant] = of('ReferenceGrant', all);
    expect(grant?.metadata.namespace).toBe('keyfence');
    expect(grant?.['spec'].to).toEqual([{ group: '', kind: 'Service', name: service?.metadata.name }]);
    for (const { apiVersion, kind, metadata } of holders)
      expect(grant?.['spec'].from).toEqual([
        { group: apiVersion.split('/')[0], kind, namespace: metadata.namespace },
      ]);
    return expect(holders.length).toBeGreaterThan(0);
  });

  test('asks for keys and the permission of a route', () => {
    const wanted = [
      [undefined, 'shop'],
      [REPORTS, 'shop'],
    ];
    if (asks === 'gRPC') {
      const contexts = within(all, 'contextExtensions').map((extensions) =>
        Array.isArray(extensions)
          ? Object.fromEntries(extensions.map(({ name, value }) => [name, value]))
          : extensions,
      );
      const questions = contexts.map((context_extensions) => {
        const http = { headers: { authorization: 'Bearer key' } };
        return checkQuestion({ attributes: { request: { http }, context_extensions } }, SETTINGS);
      });
      expect(questions).toMatchObject([
        { apiId: 'shop', requirements: { permissions: undefined } },
        { apiId: 'shop', requirements: { permissions: expect.anything() } },
      ]);
      expect(contexts.map(({ permissions, api_id }) => [permissions, api_id])).toEqual(wanted);
      return;
    }
    const providers = (read('gateways/istio/mesh-config.yaml')[0] as { extensionProviders?: object[] })
      .extensionProviders as { name: string; envoyExtAuthzHttp: { pathPrefix: string } }[];
    const paths =
      asks === 'providers'
        ? of('AuthorizationPolicy', all).map(
            ({ spec }) =>
              providers.find(({ name }) => name === spec.provider.name)?.envoyExtAuthzHttp.pathPrefix,
          )
        : within(all, 'http').map(({ path }) => path);
    expect(paths).toHaveLength(2);
    for (const [i, path] of paths.entries()) {
      const parsed = parseAuthzPath(asks === 'auth-request' ? path : `${path}/orders/1?a=b`);
      expect(parsed).toMatchObject({
        api: 'shop',
        dialect: { name: asks === 'providers' ? 'ext-authz' : asks },
      });
      expect(parsed?.requirements.permissions === undefined).toBe(i === 0);
      expect(path?.includes(`/require/${REPORTS}/`)).toBe(i === 1);
    }
  });

  test('hides keys from the API and refuses in doubt', () => {
    if (asks === 'gRPC') {
      expect(within(all, 'failOpen')).not.toContain(true);
      expect(within(all, 'statusOnError')).not.toEqual([]);
      for (const status of within(all, 'statusOnError')) expect(status).toBe(503);
      return;
    }
    for (const { spec } of of('HTTPRoute', all)) {
      const [{ filters }] = spec.rules;
      const removed = filters.at(-1).requestHeaderModifier.remove;
      expect(removed).toEqual(['authorization', 'x-api-key', 'x-key-meta', 'x-key-token']);
      if (asks === 'providers') continue;
      const [{ externalAuth }] = filters;
      expect(externalAuth.http.allowedHeaders).toContain('x-api-key');
      expect(externalAuth.http.allowedResponseHeaders).toEqual(
        ['id', 'api-id', 'name', 'external-id'].map((name) => `x-key-${name}`),
      );
    }
  });
});

test('kgateway kinds have the fields of its types', () => {
  const all = read('gateways/gateway-api/kgateway.yaml').filter(({ apiVersion }) =>
    apiVersion.includes('kgateway'),
  );
  // kgateway-dev/kgateway: api/v1alpha1/kgateway/ext_auth_types.go and traffic_policy_types.go
  const known: Record<string, string[]> = {
    GatewayExtension: [
      'extAuth',
      'extAuth.failOpen',
      'extAuth.statusOnError',
      'extAuth.grpcService',
      'extAuth.grpcService.backendRef',
      'extAuth.grpcService.backendRef.name',
      'extAuth.grpcService.backendRef.namespace',
      'extAuth.grpcService.backendRef.port',
      'extAuth.grpcService.requestTimeout',
    ],
    TrafficPolicy: [
      'targetRefs',
      'extAuth',
      'extAuth.extensionRef',
      'extAuth.extensionRef.name',
      'extAuth.contextExtensions',
      'extAuth.contextExtensions.api_id',
      'extAuth.contextExtensions.permissions',
    ],
  };
  const pathsOf = (value: object, at = ''): string[] =>
    Object.entries(value).flatMap(([name, inner]) => [
      at + name,
      ...(typeof inner === 'object' && inner !== null && !Array.isArray(inner)
        ? pathsOf(inner, `${at}${name}.`)
        : []),
    ]);
  expect(all).toHaveLength(3);
  for (const { apiVersion, kind, spec } of all) {
    expect(apiVersion).toBe('gateway.kgateway.dev/v1alpha1');
    expect(pathsOf(spec).filter((path) => !known[kind]?.includes(path))).toEqual([]);
  }
});

test('both files differ in gateway and answer only', () => {
  const [cilium, nginx] = ['external-auth.yaml', 'nginx-gateway-fabric.yaml'].map((file) =>
    JSON.stringify(read('gateways/gateway-api', file)),
  );
  expect(nginx).toBe(
    cilium
      ?.replace('"gatewayClassName":"cilium"', '"gatewayClassName":"nginx"')
      .replaceAll('/ext-authz"', '/auth-request"'),
  );
});

test.skipIf(noDefinitions !== '')(`finds what makers refuse${noDefinitions}`, () => {
  const [route] = of('HTTPRoute', read('gateways/gateway-api/external-auth.yaml'));
  const spoiled = (spoil: (copy: Manifest) => void) => {
    const copy = structuredClone(route) as Manifest;
    spoil(copy);
    return definitionFaults(copy);
  };
  expect(spoiled(() => undefined)).toEqual([]);
  const filter = (copy: Manifest) => copy['spec'].rules[0].filters[0];
  for (const spoil of [
    (copy: Manifest) => Object.assign(filter(copy), { type: 'ExternalAuthz' }),
    (copy: Manifest) => Object.assign(filter(copy).externalAuth, { timeout: '1s' }),
    (copy: Manifest) => delete filter(copy).externalAuth.backendRef,
    (copy: Manifest) => Object.assign(filter(copy).externalAuth.http, { path: '/a b' }),
    (copy: Manifest) => Object.assign(copy['spec'], { hostname: ['shop.example'] }),
    (copy: Manifest) => Object.assign(copy, { kind: 'HttpRoute' }),
  ])
    expect(spoiled(spoil)).not.toEqual([]);
  expect(
    hasDefinition({
      ...(route as Manifest),
      kind: 'SecurityPolicy',
      apiVersion: 'gateway.envoyproxy.io/v1alpha1',
    }),
  ).toBe(true);
});
