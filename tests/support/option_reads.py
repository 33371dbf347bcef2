"""Which options modules read: types of expressions, as far as annotations and assignments tell them.

An attribute counts as read of a class of the schema only where the expression before it can be one of that class, so
that ``name``, ``path`` or ``dir`` of something else is none.
"""

from __future__ import annotations

import ast
import dataclasses
import typing
from collections.abc import Iterable, Sequence
from typing import Any

Types = set[str]
_LIKE_ITS_ARGUMENTS = ("replace", "next", "reversed", "sorted", "iter", "list", "tuple", "enumerate", "zip")


def schema_classes(root: Any) -> dict[str, dict[str, Types]]:
    """For each dataclass at and below ``root``, its fields with the dataclasses that they hold."""
    found: dict[str, dict[str, Types]] = {}

    def held(hint: Any) -> set[Any]:
        if dataclasses.is_dataclass(hint):
            return {hint}
        return {one for inner in typing.get_args(hint) for one in held(inner)}

    def walk(cls: Any) -> None:
        if cls.__name__ in found:
            return
        hints = {name: held(hint) for name, hint in typing.get_type_hints(cls).items()}
        found[cls.__name__] = {f.name: {one.__name__ for one in hints[f.name]} for f in dataclasses.fields(cls)}
        for field in dataclasses.fields(cls):
            for one in hints[field.name]:
                walk(one)

    walk(root)
    return found


class Reads:
    """The options that are read in some modules.

    Args:
        classes: of the schema, as :func:`schema_classes` gives them.
        modules: in which reads count.
        others: modules whose annotations are needed, too.

    Attributes:
        found: (class, field) pairs.
    """

    def __init__(
        self, classes: dict[str, dict[str, Types]], modules: Sequence[str], others: Sequence[str] = ()
    ) -> None:
        self.found: set[tuple[str, str]] = set()
        self._classes = classes
        self._attributes: dict[str, Types] = {}
        self._returned: dict[str, Types] = {}
        trees = [ast.parse(text) for text in modules]
        for tree in [*trees, *map(ast.parse, others)]:
            self._declared(tree)
        for _ in range(2):  # what one module assigns to an attribute, another one reads
            for tree in trees:
                self._scope(tree, {})

    def _declared(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                returned = self._named(node.returns)
                self._returned.setdefault(node.name, set()).update(returned)
                if node.decorator_list:  # a property
                    self._attributes.setdefault(node.name, set()).update(returned)
            elif isinstance(node, ast.ClassDef) and node.name not in self._classes:
                for one in node.body:
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                        self._attributes.setdefault(one.target.id, set()).update(self._named(one.annotation))

    def _named(self, annotation: ast.expr | None) -> Types:
        """Classes of the schema in an annotation."""
        nodes = [] if annotation is None else list(ast.walk(annotation))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        return (names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}) & self._classes.keys()

    def _type(self, node: ast.expr | None, known: dict[str, Types]) -> Types:
        if isinstance(node, ast.Name):
            return known.get(node.id, set())
        if isinstance(node, ast.Attribute):
            owners = self._type(node.value, known)
            if not owners:
                return self._attributes.get(node.attr, set())
            return self._all(self._classes[owner].get(node.attr, set()) for owner in owners)
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in self._classes:
                return {name}
            chosen = self._group(node)
            if chosen:
                return chosen
            if name in _LIKE_ITS_ARGUMENTS:
                return self._all(self._type(one, known) for one in node.args)
            return self._returned.get(name, set())
        if isinstance(node, ast.IfExp):
            return self._type(node.body, known) | self._type(node.orelse, known)
        if isinstance(node, ast.BoolOp):
            return self._all(self._type(one, known) for one in node.values)
        if isinstance(node, ast.GeneratorExp | ast.ListComp):
            inner = dict(known)
            for one in node.generators:
                self._assign(one.target, self._type(one.iter, inner), inner)
            return self._type(node.elt, inner)
        if isinstance(node, ast.Subscript | ast.Starred | ast.NamedExpr):
            return self._type(node.value, known)
        return set()

    def _group(self, node: ast.expr) -> Types:
        """The options that ``dataset.of(Options)`` gives; none for any other expression."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "of":
            return {one.id for one in node.args if isinstance(one, ast.Name)} & self._classes.keys()
        return set()

    @staticmethod
    def _all(several: Iterable[Types]) -> Types:
        return {name for types in several for name in types}

    def _assign(self, target: ast.expr, types: Types, known: dict[str, Types]) -> None:
        if isinstance(target, ast.Name):
            known[target.id] = known.get(target.id, set()) | types
        elif isinstance(target, ast.Attribute):
            self._attributes.setdefault(target.attr, set()).update(types)
        elif isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self._assign(one, types, known)

    def _scope(self, node: ast.AST, outer: dict[str, Types]) -> None:
        known, nodes, inner = dict(outer), list[ast.AST](), list[ast.AST]()
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
                known[argument.arg] = self._named(argument.annotation)
        waiting = list(ast.iter_child_nodes(node))
        while waiting:
            one = waiting.pop(0)
            if isinstance(one, ast.FunctionDef | ast.ClassDef | ast.Lambda):
                inner.append(one)
                waiting += getattr(one, "decorator_list", [])
            else:
                nodes.append(one)
                waiting += ast.iter_child_nodes(one)
        for one in nodes:
            if isinstance(one, ast.Assign):
                for target in one.targets:
                    self._assign_each(target, one.value, known)
            elif isinstance(one, ast.AnnAssign):
                self._assign(one.target, self._named(one.annotation) | self._type(one.value, known), known)
            elif isinstance(one, ast.NamedExpr):
                self._assign(one.target, self._type(one.value, known), known)
            elif isinstance(one, ast.For | ast.comprehension):
                self._assign(one.target, self._type(one.iter, known), known)
        for one in nodes:
            for chosen in self._group(one) if isinstance(one, ast.expr) else ():
                self.found |= {
                    (owner, name) for owner, its in self._classes.items() for name in its if chosen in its[name]
                }
            if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load):
                owners = self._type(one.value, known)
                self.found |= {(owner, one.attr) for owner in owners if one.attr in self._classes[owner]}
        for one in inner:
            self._scope(one, known)

    def _assign_each(self, target: ast.expr, value: ast.expr, known: dict[str, Types]) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._assign(one, self._type(its, known), known)
        else:
            self._assign(target, self._type(value, known), known)
