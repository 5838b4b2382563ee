import ajvCompiler from '@fastify/ajv-compiler';
import serializerCompiler from '@fastify/fast-json-stringify-compiler';
import type { FastifySchemaCompiler, FastifySerializerCompiler } from 'fastify';

/** Fastify's defaults would coerce types and drop unknown fields, contrary to the contract. */
const RULES = { coerceTypes: false, removeAdditional: false, useDefaults: true, allErrors: false } as const;
/** The schemas are constants, and tests check the resulting document against OpenAPI's own schema. */
const customOptions = { ...RULES, validateSchema: false } as const;

// One of each per process: servers with the same schema share the compiled result.
const validators = ajvCompiler()({}, { customOptions });
const serializers = serializerCompiler()();

/**
 * Returns a validator that compiles its schema at the first call of its route: compiling all of them took a
 * third of a control plane's start.
 */
export const validatorAtFirstCall: FastifySchemaCompiler<object> = ({ schema }) => {
  let cache: ReturnType<typeof validators> | undefined;
  const validate: ReturnType<FastifySchemaCompiler<object>> = (data) => {
    cache ??= validators({ schema });
    const isValid = cache(data) === true;
    validate.errors = cache.errors ?? null;
    return isValid;
  };
  return validate;
};

/** Returns a serializer that compiles its schema at the first call of its route. */
export const serializerAtFirstCall: FastifySerializerCompiler<object> = (route) => {
  let cache: ReturnType<typeof serializers> | undefined;
  return (data) => {
    cache ??= serializers({ httpStatus: '', ...route });
    return cache(data);
  };
};
