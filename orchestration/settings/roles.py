"""The settings of the model roles: `[roles.<name>]`, `TOOLMILL_ROLES__…`."""

from pydantic import BaseModel, ConfigDict, Field, field_validator

from warehouse.llm.roles import OPENAI, RoleSettings


class Roles(BaseModel):
    """The model roles of synthesis and of the sidecar's data, each with its own model, endpoint,
    key, price and rate."""

    model_config = ConfigDict(extra="forbid")

    generator: RoleSettings = Field(default=RoleSettings(), description="writes requests")
    reviser: RoleSettings = Field(
        default=RoleSettings(), description="puts every required value into the words"
    )
    evolver: RoleSettings = Field(
        default=RoleSettings(), description="makes a request harder, a step at a time"
    )
    caller: RoleSettings = Field(
        default=RoleSettings(temperature=0.0), description="writes the golden call"
    )
    checker_a: RoleSettings = Field(
        default=RoleSettings(temperature=0.0), description="picks among look-alikes"
    )
    checker_b: RoleSettings = Field(
        default=RoleSettings(temperature=0.0), description="picks too, best another"
    )
    judge: RoleSettings = Field(
        default=RoleSettings(temperature=0.0), description="scores by the rubric"
    )
    actor: RoleSettings = Field(
        default=RoleSettings(), description="plays a tool's answer in a conversation"
    )
    drafter: RoleSettings = Field(
        default=RoleSettings(temperature=0.0),
        description="calls tools; the sidecar learns to revise its drafts",
    )

    @field_validator("*")
    @classmethod
    def has_installed_protocol(cls, role: RoleSettings) -> RoleSettings:
        """Whether the package's provider can be made is seen when the role is asked."""
        if role.protocol != OPENAI:
            from warehouse.llm.endpoint import GROUP, load_protocols

            known = (OPENAI, *load_protocols())
            if role.protocol not in known:
                raise ValueError(
                    f"protocol {role.protocol!r:.80}: expected one of {', '.join(known)}; install"
                    f" the package that registers it under {GROUP}"
                )
        return role
