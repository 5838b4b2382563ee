import ajvCompiler from '@fastify/ajv-compiler';
import serializerCompiler from '@fastify/fast-json-stringify-compiler';
import type { FastifySchemaCompiler, FastifySerializerCompiler } from 'fastify';

/** Fastify's defaults would coerce types and drop unknown fields, and so promise what we do not do. */
const RULES = { coerceTypes: false, removeAdditional: false, useDefaults: true, allErrors: false } as const;
/** The schemas are constants, and the tests hold the document that is made of them to OpenAPI's own schema. */
const customOptions = { ...RULES, validateSchema: false } as const;

// One each for the process: servers that ask for the same schema share what it was compiled to.
const validators = ajvCompiler()({}, { customOptions });
const serializers = serializerCompiler()();

/**
 * Makes what checks a request by its schema. It compiles at the route's first call, as `serializerAtFirstCall` does: to
 * compile all of them was a third of a control plane's start.
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

/** Makes what writes a response by its schema. */
export const serializerAtFirstCall: FastifySerializerCompiler<object> = (route) => {
  let cache: ReturnType<typeof serializers> | undefined;
  return (data) => {
    cache ??= serializers({ httpStatus: '', ...route });
    return cache(data);
  };
};
