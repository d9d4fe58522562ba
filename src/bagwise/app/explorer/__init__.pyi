from .running import Explorer as Explorer
from .running import explore as explore
from .running import workspace_of as workspace_of
from .serving import Server as Server
from .serving import open_other as open_other
from .serving import open_workspace as open_workspace
from .workspace import Workspace as Workspace
