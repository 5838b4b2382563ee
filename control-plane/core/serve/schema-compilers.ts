import ajvCompiler from '@fastify/ajv-compiler';
import serializerCompiler from '@fastify/fast-json-stringify-compiler';
import type { FastifySchemaCompiler, FastifySerializerCompiler } from 'fastify';

/** Fastify's defaults would coerce types and drop unknown fields, contrary to the contract. */
const RULES = { coerceTypes: false, removeAdditional: false, useDefaults: true, allErrors: false } as const;
/** The schemas are constants, and tests check the resulting document against OpenAPI's own schema. */
const customOptions = { ...RULES, validateSchema: false } as const;

// One of each per process: servers with the same schema share the compiled result.
const validators = ajvCompiler()({}, { customOptions });
const thoroughValidators = ajvCompiler()({}, { customOptions: { ...customOptions, allErrors: true } });
const serializers = serializerCompiler()();

/**
 * The maximum number of values in a request of which all faults are named. Of larger requests only the first fault is,
 * because each value could have one.
 */
const VALUES_MAX = 1000;

/**
 * Returns a validator that compiles its schema at the first call of its route: compiling all of them took a
 * third of a control plane's start. The validator stops at the first fault; a small request with one is then
 * validated again, for all its faults.
 */
export const validatorAtFirstCall: FastifySchemaCompiler<object> = ({ schema }) => {
  let cache: ReturnType<typeof validators> | undefined;
  let thorough: typeof cache;
  const validate: ReturnType<FastifySchemaCompiler<object>> = (data) => {
    cache ??= validators({ schema });
    const isValid = cache(data) === true;
    validate.errors = cache.errors ?? null;
    if (isValid || !isSmall(data)) return isValid;
    thorough ??= thoroughValidators({ schema });
    thorough(data);
    validate.errors = thorough.errors ?? validate.errors;
    return isValid;
  };
  return validate;
};

/** Tells whether a request has at most VALUES_MAX values, at any depth. */
function isSmall(data: unknown): boolean {
  const open = [data];
  for (let i = 0; i < open.length; i++) {
    const value = open[i];
    if (typeof value !== 'object' || value === null) continue;
    const parts = Object.values(value);
    if (open.length + parts.length > VALUES_MAX) return false;
    open.push(...parts);
  }
  return true;
}

/** Returns a serializer that compiles its schema at the first call of its route. */
export const serializerAtFirstCall: FastifySerializerCompiler<object> = (route) => {
  let cache: ReturnType<typeof serializers> | undefined;
  return (data) => {
    cache ??= serializers({ httpStatus: '', ...route });
    return cache(data);
  };
};
