import type { TSchema } from 'typebox';
import { stringify } from 'yaml';
import {
  API_SPEC,
  GROUP,
  IDENTITY_SPEC,
  KEY_SPEC,
  ROLE_SPEC,
  VERSION,
} from '../../control-plane/clients/operator/objects.ts';
import { createApi } from '../../control-plane/core/apis/operations.ts';
import { createKey } from '../../control-plane/core/keys/operations/keys.ts';
import { createIdentity } from '../../control-plane/subjects/identities/operations.ts';
import { createRole } from '../../control-plane/subjects/roles/operations.ts';

type Schema = Readonly<Record<string, unknown>>;

/** Words of JSON Schema that mean the same in a definition of Kubernetes. */
const KEPT = [
  ...[
    'type',
    'description',
    'pattern',
    'minLength',
    'maxLength',
    'minimum',
    'maximum',
    'minItems',
    'maxItems',
  ],
  ...['required', 'default'],
];

/** Returns a schema of ours in the form that Kubernetes takes: without unions and fixed values. */
function structural(schema: Schema): Schema {
  const { anyOf, items, properties, additionalProperties } = schema as {
    anyOf?: readonly Schema[];
    items?: Schema;
    properties?: Readonly<Record<string, Schema>>;
    additionalProperties?: unknown;
  };
  const { description } = schema;
  if (anyOf) {
    const values = anyOf.filter((each) => 'const' in each).map((each) => each['const']);
    const [plain = {}] = anyOf.filter((each) => each['type'] !== 'null');
    const about = description === undefined ? {} : { description };
    return values.length > 0
      ? { type: 'string', enum: values, ...about }
      : { ...structural(plain), ...about };
  }
  const kept = Object.fromEntries(KEPT.flatMap((word) => (word in schema ? [[word, schema[word]]] : [])));
  return {
    ...kept,
    ...(items ? { items: structural(items) } : {}),
    ...(additionalProperties === true
      ? { 'x-kubernetes-preserve-unknown-fields': true }
      : properties
        ? { properties: mapped(properties) }
        : {}),
  };
}

const mapped = (properties: Readonly<Record<string, Schema>>) =>
  Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, structural(schema)]));

/** Fields of a request, by their names. */
function fieldsOf({ request }: { readonly request: TSchema }, names: readonly string[]) {
  const { properties } = request as unknown as { properties: Record<string, Schema> };
  return mapped(Object.fromEntries(names.map((name) => [name, properties[name] ?? {}])));
}

const NAME = { type: 'string', pattern: '^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$' };
const SECRET_KEY = { type: 'string', pattern: '^[A-Za-z0-9._-]{1,253}$', default: 'key' };
const FIXED = [{ rule: 'self == oldSelf', message: 'cannot be changed; create another object' }];

/** The rules of a kind whose name in Keyfence is in `field`, and otherwise that of the object: it cannot be changed. */
const fixedName = (field: string) => [
  {
    rule: `has(self.${field}) == has(oldSelf.${field})`,
    message: `${field}: cannot be changed; create another object`,
  },
];
const namedBy = ({ request }: { readonly request: TSchema }, field: string) => ({
  ...fieldsOf({ request }, [field])[field],
  ...{ 'x-kubernetes-validations': FIXED, description: 'Default: the name of the object.' },
});
const RECORD_STATUS = {
  ...{ id: { type: 'string' }, sequence: { type: 'integer' }, verifiers: { type: 'integer' } },
};

const CONDITIONS = {
  type: 'array',
  maxItems: 8,
  'x-kubernetes-list-type': 'map',
  'x-kubernetes-list-map-keys': ['type'],
  items: {
    type: 'object',
    required: ['type', 'status', 'reason', 'message', 'lastTransitionTime'],
    properties: {
      ...{ type: { type: 'string' }, status: { type: 'string' }, reason: { type: 'string' } },
      ...{ message: { type: 'string' }, observedGeneration: { type: 'integer' } },
      lastTransitionTime: { type: 'string', format: 'date-time' },
    },
  },
};

const column = (name: string, jsonPath: string) => ({ name, type: 'string', jsonPath });
const conditionColumn = (type: string) => column(type, `.status.conditions[?(@.type=="${type}")].status`);

function definition(
  names: { readonly kind: string; readonly plural: string; readonly singular: string },
  scope: 'Namespaced' | 'Cluster',
  columns: readonly object[],
  spec: Schema,
  status: Schema,
) {
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: {
      name: `${names.plural}.${GROUP}`,
      // An uninstalled release leaves the objects, and so the keys.
      annotations: { 'helm.sh/resource-policy': 'keep' },
    },
    spec: {
      ...{
        group: GROUP,
        scope,
        names: { ...names, listKind: `${names.kind}List`, categories: ['keyfence'] },
      },
      versions: [
        {
          ...{ name: VERSION, served: true, storage: true, subresources: { status: {} } },
          additionalPrinterColumns: columns,
          schema: {
            openAPIV3Schema: {
              type: 'object',
              required: ['spec'],
              properties: {
                apiVersion: { type: 'string' },
                kind: { type: 'string' },
                metadata: { type: 'object' },
                spec,
                status: {
                  type: 'object',
                  properties: { observedGeneration: { type: 'integer' }, conditions: CONDITIONS, ...status },
                },
              },
            },
          },
        },
      ],
    },
  };
}

const definitions = [
  definition(
    { kind: 'ApiKey', plural: 'apikeys', singular: 'apikey' },
    'Namespaced',
    [
      column('API', '.spec.api'),
      column('Key', '.status.keyId'),
      conditionColumn('Ready'),
      conditionColumn('Propagated'),
    ],
    {
      type: 'object',
      required: ['api'],
      'x-kubernetes-validations': [
        {
          rule: '!(has(self.secretName) && has(self.secretRefs))',
          message: 'secretName and secretRefs: give one of them',
        },
      ],
      properties: {
        api: {
          ...{ type: 'string', pattern: '^[A-Za-z0-9_-]{1,64}$', 'x-kubernetes-validations': FIXED },
          description: 'The API that the key belongs to; a KeyApi must admit the namespace.',
        },
        secretName: {
          ...NAME,
          description: 'The Secret that the operator makes. Default: the name of the object.',
        },
        secretRefs: {
          ...{ type: 'array', minItems: 1, maxItems: 4 },
          description: 'Secrets of your own, with the label keyfence.io/secret=true. Each is accepted.',
          items: { type: 'object', required: ['name'], properties: { name: NAME, key: SECRET_KEY } },
        },
        graceSeconds: {
          ...{ type: 'integer', minimum: 0, maximum: 2_592_000, default: 3600 },
          description: 'How long a secret that was replaced is still accepted.',
        },
        expires: { type: 'string', format: 'date-time', description: 'From then on the key is refused.' },
        enabled: { type: 'boolean', default: true, description: 'false: the key is refused.' },
        ...fieldsOf(createKey, ['prefix', 'byteLength', ...KEY_SPEC]),
      },
    },
    {
      ...{ keyId: { type: 'string' }, sequence: { type: 'integer' }, verifiers: { type: 'integer' } },
      retired: { type: 'array', items: { type: 'string' } },
    },
  ),
  definition(
    { kind: 'KeyApi', plural: 'keyapis', singular: 'keyapi' },
    'Cluster',
    [column('API', '.spec.apiId'), conditionColumn('Ready')],
    {
      type: 'object',
      'x-kubernetes-validations': fixedName('apiId'),
      properties: {
        apiId: {
          ...{ type: 'string', pattern: '^[A-Za-z0-9_-]{1,64}$', 'x-kubernetes-validations': FIXED },
          description: 'Default: the name of the object.',
        },
        allowedNamespaces: {
          type: 'object',
          description: 'Namespaces that may have keys of the API, by their labels. Without labels, none.',
          properties: {
            matchLabels: { type: 'object', additionalProperties: { type: 'string' } },
          },
        },
        takeFrom: {
          type: 'array',
          maxItems: 16,
          items: { type: 'string', pattern: '^[0-9a-f]{12}$' },
          description:
            'Other installations of the operator whose keys objects of the same names and namespaces take over, as after a move to another cluster.',
        },
        ...fieldsOf(createApi, ['name', ...API_SPEC]),
      },
    },
    {},
  ),
  definition(
    { kind: 'KeyRole', plural: 'keyroles', singular: 'keyrole' },
    'Namespaced',
    [conditionColumn('Ready'), conditionColumn('Propagated')],
    {
      ...{ type: 'object', 'x-kubernetes-validations': fixedName('name') },
      properties: { name: namedBy(createRole, 'name'), ...fieldsOf(createRole, ROLE_SPEC) },
    },
    RECORD_STATUS,
  ),
  definition(
    { kind: 'KeyIdentity', plural: 'keyidentities', singular: 'keyidentity' },
    'Namespaced',
    [conditionColumn('Ready'), conditionColumn('Propagated')],
    {
      ...{ type: 'object', required: ['apiIds'], 'x-kubernetes-validations': fixedName('externalId') },
      properties: {
        externalId: namedBy(createIdentity, 'externalId'),
        apiIds: {
          ...fieldsOf(createIdentity, ['apiIds'])['apiIds'],
          description: 'The APIs in which it applies; the KeyApi of each must admit the namespace.',
        },
        enabled: {
          ...{ type: 'boolean', default: true },
          description: 'false: all its keys in these APIs are refused.',
        },
        ...fieldsOf(createIdentity, IDENTITY_SPEC),
      },
    },
    RECORD_STATUS,
  ),
];

/** The definitions of the operator's kinds, from the schemas of the operations that they lead to. */
export const crds = (): string =>
  `# From the schemas of the operations: npm run docs.\n${definitions
    .map((each) => stringify(each, { lineWidth: 0, aliasDuplicateObjects: false }))
    .join('---\n')}`;
