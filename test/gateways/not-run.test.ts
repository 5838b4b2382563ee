import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { OTHERS, REPORTS } from './spellings.ts';

/**
 * Form of a YAML value: a type's name, the strings allowed, a list of one shape, a map of any key, or an object of
 * these fields (with `!` where it must be there) and no other.
 */
type Shape =
  | 'string'
  | 'number'
  | 'boolean'
  | RegExp
  | readonly [Shape]
  | { '*': Shape }
  | { [field: string]: Shape };

const strings: Shape = ['string'];
const metadata: Shape = { 'name!': 'string', namespace: 'string', labels: { '*': 'string' } };

/** The fields as their makers publish them, of the parts that we use. */
const files: Record<string, Shape> = {
  // istio/api: mesh/v1alpha1/config.proto
  'istio/mesh-config.yaml': {
    'extensionProviders!': [
      {
        'name!': 'string',
        'envoyExtAuthzHttp!': {
          'service!': 'string',
          'port!': 'number',
          timeout: /^[\d.]+s$/,
          pathPrefix: 'string',
          failOpen: 'boolean',
          statusOnError: /^\d{3}$/,
          includeRequestHeadersInCheck: strings,
          includeAdditionalHeadersInCheck: { '*': 'string' },
          headersToUpstreamOnAllow: strings,
          headersToDownstreamOnDeny: strings,
          headersToDownstreamOnAllow: strings,
        },
      },
    ],
  },
  // istio/api: security/v1/authorization_policy.proto
  'istio/policy.yaml': {
    'apiVersion!': /^security\.istio\.io\/v1$/,
    'kind!': /^AuthorizationPolicy$/,
    'metadata!': metadata,
    'spec!': {
      selector: { matchLabels: { '*': 'string' } },
      'action!': /^(ALLOW|DENY|AUDIT|CUSTOM)$/,
      provider: { 'name!': 'string' },
      'rules!': [
        { to: [{ operation: { paths: strings, notPaths: strings, hosts: strings, methods: strings } }] },
      ],
    },
  },
  // istio/api: networking/v1/virtual_service.proto
  'istio/routes.yaml': {
    'apiVersion!': /^networking\.istio\.io\/v1$/,
    'kind!': /^VirtualService$/,
    'metadata!': metadata,
    'spec!': {
      'hosts!': strings,
      gateways: strings,
      'http!': [
        {
          match: [{ 'uri!': { regex: 'string', prefix: 'string', exact: 'string' } }],
          directResponse: { 'status!': 'number' },
          headers: { request: { set: { '*': 'string' }, add: { '*': 'string' }, remove: strings } },
          route: [{ 'destination!': { 'host!': 'string', port: { 'number!': 'number' } }, weight: 'number' }],
        },
      ],
    },
  },
  // apache/apisix: the schemas in apisix/plugins/forward-auth.lua, apisix/plugins/serverless and apisix/schema_def.lua
  'apisix/apisix.yaml': {
    'routes!': [
      {
        'id!': 'string',
        'uri!': 'string',
        priority: 'number',
        vars: [['string']],
        'plugins!': {
          'serverless-pre-function': { 'phase!': /^rewrite$/, 'functions!': strings },
          'serverless-post-function': { 'phase!': /^before_proxy$/, 'functions!': strings },
          'forward-auth!': {
            'uri!': 'string',
            request_method: /^(GET|POST)$/,
            request_headers: strings,
            upstream_headers: strings,
            client_headers: strings,
            timeout: 'number',
            ssl_verify: 'boolean',
            keepalive: 'boolean',
            keepalive_timeout: 'number',
            keepalive_pool: 'number',
            status_on_error: 'number',
            allow_degradation: 'boolean',
          },
        },
        'upstream!': { 'type!': 'string', 'nodes!': { '*': 'number' } },
      },
    ],
  },
};

const textOf = (file: string) =>
  readFileSync(join(import.meta.dirname, '..', '..', 'deploy', 'gateways', file), 'utf8');

const pathOf = (target: string) => target.split(/[?#]/, 1)[0] ?? '';
/** What letters and digits decode to: the form in which RFC 3986 §6.2.2.2 has paths compared. */
const normalized = (path: string) =>
  path.replace(/%(3\d|[46][1-9a-f]|[57][0-9a])/gi, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );

/** Tells as each gateway's manual does whether it asks for the permission, by the matcher in its file. */
const matchers: Record<
  string,
  (route: (...path: (string | number)[]) => unknown) => (target: string) => boolean
> = {
  // istio.io, StringMatch: RE2, all of the path without its query, which Envoy has normalized (pathNormalization BASE).
  'istio/routes.yaml': (at) => {
    const regex = new RegExp(`^(?:${at('spec', 'http', 0, 'match', 0, 'uri', 'regex')})$`);
    expect(at('spec', 'http', 0, 'directResponse', 'status')).toBe(403);
    return (target) => regex.test(normalized(pathOf(target)));
  },
  // apisix.apache.org, vars: `~~` finds a PCRE anywhere in nginx's $request_uri, the target as it came.
  'apisix/apisix.yaml': (at) => {
    const [[name, operator, pattern = ''] = [], ...others] = at('routes', 1, 'vars') as string[][];
    expect([name, operator, others]).toEqual(['request_uri', '~~', []]);
    expect([at('routes', 0, 'priority'), at('routes', 1, 'priority')]).toEqual([undefined, 1]);
    return (target) => new RegExp(pattern).test(target);
  },
};

test.each(Object.entries(matchers))('%s asks for the permission in every spelling', (file, matcher) => {
  const [document] = parseAllDocuments(textOf(file));
  const values: unknown = document?.toJS();
  const asksFor = matcher((...path) =>
    path.reduce((value: unknown, name) => Object(value)[name] as unknown, values),
  );
  for (const target of REPORTS) expect([target, asksFor(target)]).toEqual([target, true]);
  for (const target of OTHERS) expect([target, asksFor(target)]).toEqual([target, false]);
});

describe.each(Object.entries(files))('%s', (file, shape) => {
  const text = textOf(file);
  const documents = parseAllDocuments(text);

  test('says first that it was not run', () => {
    expect(text.split('\n', 1)[0]).toMatch(/^# Not run by our tests/);
  });

  test('is YAML of known fields, without duplicates', () => {
    for (const { errors, warnings } of documents) expect([...errors, ...warnings]).toEqual([]);
    expect(documents.flatMap((document) => faults(document.toJS(), shape))).toEqual([]);
  });
});

test('no sections of HAProxy have the same name', () => {
  const names = [...textOf('haproxy/haproxy.cfg').matchAll(/^(?:frontend|backend|listen) (\S+)/gm)].map(
    ([, name]) => name,
  );
  expect(names.length).toBe(4);
  // HAProxy 3.3 and newer refuse a frontend and a backend of one name.
  expect([...new Set(names)]).toEqual(names);
});

test('the check finds wrong, missing, extra fields', () => {
  const shape: Shape = { 'name!': /^a$/, list: [{ 'n!': 'number' }], map: { '*': 'boolean' } };
  expect(faults({ name: 'a', list: [{ n: 1 }], map: { x: true } }, shape)).toEqual([]);
  expect(faults({ list: [{ n: '1', m: 1 }], map: { x: 1 }, more: 1 }, shape)).toEqual([
    '.name: missing',
    '.list.0.n: not a number',
    '.list.0.m: unknown',
    '.map.x: not a boolean',
    '.more: unknown',
  ]);
});

function faults(value: unknown, shape: Shape, at = ''): string[] {
  if (typeof shape === 'string') return typeof value === shape ? [] : [`${at}: not a ${shape}`];
  if (shape instanceof RegExp)
    return typeof value === 'string' && shape.test(value) ? [] : [`${at}: not ${shape}`];
  if (Array.isArray(shape))
    return Array.isArray(value)
      ? value.flatMap((item, i) => faults(item, shape[0], `${at}.${i}`))
      : [`${at}: not a list`];
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [`${at}: not an object`];
  const fields = shape as Readonly<Record<string, Shape>>;
  const missing = Object.keys(fields).filter((name) => name.endsWith('!') && !(name.slice(0, -1) in value));
  return [
    ...missing.map((name) => `${at}.${name.slice(0, -1)}: missing`),
    ...Object.entries(value).flatMap(([name, inner]) => {
      const known = fields[name] ?? fields[`${name}!`] ?? fields['*'];
      return known === undefined ? [`${at}.${name}: unknown`] : faults(inner, known, `${at}.${name}`);
    }),
  ];
}
