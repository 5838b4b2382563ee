import { BaseSequencer, type TestSpecification } from 'vitest/node';

const PROJECT_ORDER: readonly string[] = ['proof', 'system', 'redis', 'unit'];

/**
 * Goes from project to project, the slowest first, so that a worker can go on with the next file of its own; of a project
 * the larger files first, as Vitest does.
 */
export class SlowestProjectFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const order = ({ project }: TestSpecification) => PROJECT_ORDER.indexOf(project.name);
    return (await super.sort(files)).toSorted((a, b) => order(a) - order(b));
  }
}
