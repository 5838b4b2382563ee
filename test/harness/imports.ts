import { dirname, join, normalize } from 'node:path';

/** Lists what each file imports: files of this project by their paths, libraries by their names. Types count. */
export function importsOf(files: ReadonlyMap<string, string>): Map<string, string[]> {
  const importsIn = (file: string, text: string) =>
    [...text.matchAll(/(?:from|import\(?)\s*'([^']+)'/g)].map(([, specifier = '']) => {
      if (specifier.startsWith('#shared/')) return specifier.slice(1);
      return specifier.startsWith('.') ? normalize(join(dirname(file), specifier)) : specifier;
    });
  return new Map([...files].map(([file, text]) => [file, importsIn(file, text)]));
}

/** Everything that a file imports, by way of others too; the file itself only where it is in a circle. */
export function reachedFrom(imports: ReadonlyMap<string, readonly string[]>, file: string): Set<string> {
  const reached = new Set<string>();
  const next = [...(imports.get(file) ?? [])];
  for (let target = next.pop(); target !== undefined; target = next.pop()) {
    if (reached.has(target)) continue;
    reached.add(target);
    next.push(...(imports.get(target) ?? []));
  }
  return reached;
}
