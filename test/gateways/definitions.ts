import { existsSync, readFileSync } from 'node:fs';
import { Value } from 'typebox/value';
import { parseAllDocuments } from 'yaml';
import { definitionsPath } from '../../deploy/dev/go-tools.ts';
import type { Manifest } from '../deploy/kustomize.ts';
import { lacking } from '../harness/programs.ts';

/** The part of OpenAPI's schemas that definitions of kinds use. */
interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly additionalProperties?: Schema | boolean;
  readonly format?: string;
  readonly 'x-kubernetes-preserve-unknown-fields'?: boolean;
  readonly [field: string]: unknown;
}
interface Definition extends Manifest {
  readonly spec: {
    readonly group: string;
    readonly names: { readonly kind: string };
    readonly versions: readonly { name: string; schema: { openAPIV3Schema: Schema } }[];
  };
}

const isThere = existsSync(definitionsPath);
/** Reason why tests are skipped, for their names. */
export const noDefinitions = lacking(isThere ? [] : ["gateways' CRDs"]);

/** The makers' own schemas by `<group>/<version> <kind>`. */
const schemas = new Map(
  (isThere ? parseAllDocuments(readFileSync(definitionsPath, 'utf8')) : [])
    .map((document) => document.toJS() as Definition | null)
    .filter((each) => each?.kind === 'CustomResourceDefinition')
    .flatMap((each) => {
      const { group, names, versions } = (each as Definition).spec;
      return versions.map(({ name, schema }) => [
        `${group}/${name} ${names.kind}`,
        strict({
          ...schema.openAPIV3Schema,
          // Every object has them, whatever its definition says.
          properties: { apiVersion: {}, kind: {}, metadata: {}, ...schema.openAPIV3Schema.properties },
        }),
      ]);
    }) as [string, object][],
);

export const hasDefinition = ({ apiVersion, kind }: Manifest): boolean =>
  schemas.has(`${apiVersion} ${kind}`);

/**
 * Lists what the API server would refuse of an object under strict validation, by the schema of its maker. Rules that the
 * maker wrote in CEL are left to `npm run test:kubernetes`.
 */
export function definitionFaults(manifest: Manifest): string[] {
  const schema = schemas.get(`${manifest.apiVersion} ${manifest.kind}`);
  if (!schema) return [`no schema for ${manifest.apiVersion} ${manifest.kind}`];
  return [...Value.Errors(schema, manifest)].map(({ instancePath, message }) => `${instancePath} ${message}`);
}

/** The same schema, which refuses unknown fields as the API server does. */
function strict(schema: Schema): object {
  const { format: _format, properties, items, additionalProperties, ...rest } = schema;
  const isOpen = schema['x-kubernetes-preserve-unknown-fields'] === true;
  return {
    ...rest,
    ...(items ? { items: strict(items) } : {}),
    ...(typeof additionalProperties === 'object'
      ? { additionalProperties: strict(additionalProperties) }
      : {}),
    ...(properties
      ? {
          properties: Object.fromEntries(
            Object.entries(properties).map(([name, inner]) => [name, strict(inner)]),
          ),
          ...(isOpen ? {} : { additionalProperties: false }),
        }
      : {}),
  };
}
