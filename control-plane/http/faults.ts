import type { FastifySchemaValidationError } from 'fastify';

type Fault = Pick<FastifySchemaValidationError, 'keyword' | 'instancePath' | 'params' | 'message'>;

/**
 * Returns the first fault of a validation as `field: rule`. Never contains the value, which might be a
 * secret.
 */
export function faultText(faults: readonly Fault[] | null | undefined, whole: string, part: string): string {
  const fault = faults?.[0];
  if (!faults || !fault) return `${whole}: is wrong`;
  const path = fault.instancePath.slice(1).replaceAll('/', '.');
  const field = (name: unknown) => (path ? `${path}.${String(name)}` : String(name));
  if (fault.keyword === 'required') return `${field(fault.params['missingProperty'])}: required`;
  if (fault.keyword === 'additionalProperties') {
    return `${field(fault.params['additionalProperty'])}: unknown ${part}`;
  }
  if (fault.keyword === 'const') return `${path || whole}: must be ${listOf(faults, fault)}`;
  return `${path || whole}: ${fault.message ?? 'is wrong'}`;
}

/** Lists the values allowed at the place of a fault; each value that was tried is a separate fault. */
function listOf(faults: readonly Fault[], { instancePath }: Fault): string {
  return faults
    .filter((fault) => fault.keyword === 'const' && fault.instancePath === instancePath)
    .map(({ params }) => JSON.stringify(params['allowedValue']))
    .join(' or ');
}
